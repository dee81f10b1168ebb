"""TiDB's statements on resource groups, those of its parser's tests that parse there, sent through a gateway: each has
to be done, to be refused as not supported by the name of what is not, or to be refused by a state that TiDB refuses,
too. None may reach the database.

statements.py PARSER_TEST, with a gateway before MariaDB at $PORT whose admin is root, and MariaDB at $SERVER_PORT.
Prints pass or fail, a tab, and the statement with its line in the file; how many were answered how, and the answers
that may not be, go to the error output."""

import collections
import json
import os
import re
import sys

import pymysql

# How many the version has that suites/tidb fetches: fewer have not been looked at.
STATEMENTS = 159
OURS = re.compile(r"resource[ _]group|query watch|calibrate resource", re.IGNORECASE)
# Of a test: its text, in Go's quotes, and whether it parses.
TEST = re.compile(r'^\s*\{("(?:[^"\\]|\\.)*"|`[^`]*`), (true|false),', re.MULTILINE)

NOT_SUPPORTED = 1235
# What is not supported: how the answer names it, and how the statement does.
NAMES = [
    ("CALIBRATE RESOURCE", r"^calibrate resource\b"),
    ("BACKGROUND", r"\bbackground\b"),
    ("PROCESSED_KEYS", r"\bprocessed_keys\b"),
    ("watching by PLAN", r"\bplan\b"),
    ("the variable @rg", r"@rg\b"),
    ("a QUERY_LIMIT without an ACTION", r"\bquery_limit\b(?!.*\baction\b)"),
    ("CREATE USER with a RESOURCE GROUP", r"^create user\b"),
]
# What a state refuses: the error, the statement, and the state.
STATES = [
    (8248, r"^create resource group default\b", "the group default always exists"),
    (1105, r"^drop resource group default\b", "the group default cannot be dropped"),
]
# The group that they create, alter and drop is X; they choose and watch the others.
GROUPS = [
    "CREATE RESOURCE GROUP rg1 RU_PER_SEC = 1000 QUERY_LIMIT = (EXEC_ELAPSED = '1h' ACTION = DRYRUN)",
    "CREATE RESOURCE GROUP rg2 RU_PER_SEC = 1000",
    # A watch without an action has that of its group.
    "ALTER RESOURCE GROUP `default` QUERY_LIMIT = (EXEC_ELAPSED = '1h' ACTION = DRYRUN)",
]
# It says what the others do, and is the database's: the database's log has to have it, and no other.
OF_THE_DATABASE = "SELECT 'resource group'"


def statements(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for test in TEST.finditer(text):
        quoted, parses = test.groups()
        if parses == "true" and OURS.search(quoted):
            sql = quoted[1:-1] if quoted.startswith("`") else json.loads(quoted)
            yield text.count("\n", 0, test.start(1)) + 1, sql


def judged(sql, error):
    """How it was answered; None when that may not be."""
    if error is None:
        return "done"
    code, message = error.args
    if code == NOT_SUPPORTED:
        for name, says in NAMES:
            if message.startswith(f"{name} is not supported") and re.search(says, sql, re.IGNORECASE):
                return f"{code}, not supported: {name}"
    for refused, says, state in STATES:
        if code == refused and re.search(says, sql, re.IGNORECASE):
            return f"{code}, refused: {state}"
    return None


def connect(port):
    return pymysql.connect(host="127.0.0.1", port=int(port), user="root", autocommit=True).cursor()


def answer(session, sql):
    try:
        session.execute(sql)
        return None
    except pymysql.Error as error:
        return error


def main():
    all_of_them = list(statements(sys.argv[1]))
    if len(all_of_them) != STATEMENTS:
        sys.exit(f"{sys.argv[1]} has {len(all_of_them)} statements on resource groups that parse, not {STATEMENTS}; "
                 f"look at those that are new or gone, and change STATEMENTS in {__file__}")
    server, session = connect(os.environ["SERVER_PORT"]), connect(os.environ["PORT"])
    server.execute("SET GLOBAL log_output = 'TABLE', GLOBAL general_log = 1")
    for sql in [*GROUPS, OF_THE_DATABASE]:
        session.execute(sql)

    answers = collections.Counter()
    for line, sql in all_of_them:
        # The one before has left nothing behind.
        session.execute("SET RESOURCE GROUP `default`")
        session.execute("DROP RESOURCE GROUP IF EXISTS x")
        if not re.match("create resource group", sql, re.IGNORECASE):
            session.execute("CREATE RESOURCE GROUP x RU_PER_SEC = 1000")
        error = answer(session, sql)
        how = judged(sql, error)
        answers[how or "WRONG"] += 1
        if how is None:
            print(f"WRONG: {sql!r} was answered {error.args}", file=sys.stderr)
        print("pass" if how else "fail", f"{line}: {sql}", sep="\t")

    server.execute("SELECT CONVERT(argument USING utf8mb4) FROM mysql.general_log")
    reached = [sql for (sql,) in server.fetchall() if OURS.search(sql)]
    print("pass" if reached == [OF_THE_DATABASE] else "fail", "none of them reaches the database", sep="\t")
    for sql in reached:
        if sql != OF_THE_DATABASE:
            print(f"WRONG: {sql!r} reached the database", file=sys.stderr)
    if OF_THE_DATABASE not in reached:
        print(f"WRONG: the database's log does not have {OF_THE_DATABASE!r}", file=sys.stderr)

    print("| Answer | Statements |\n|---|---|", file=sys.stderr)
    for how, count in answers.most_common():
        print(f"| {how} | {count} |", file=sys.stderr)


main()
