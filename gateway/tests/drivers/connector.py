"""What MySQL Connector/Python sees of a MySQL server at 127.0.0.1: connector.py pure|native tls|plain PORT, where the
first is whether it speaks the protocol itself or by MySQL's C library. Prints the same for the same server."""

import sys
import tempfile
import warnings

# The C library brings its own OpenSSL, and whichever is loaded first stays.
import _mysql_connector
import mysql.connector

# It tells of the server's, too, which are printed anyway.
warnings.simplefilter("ignore")
WAY, TLS, PORT = sys.argv[1:4]
LARGE = 17_000_000


def connect(**options):
    return mysql.connector.connect(
        host="127.0.0.1", port=int(PORT), user="ann", password="ann", database="shop", autocommit=True,
        use_pure=WAY == "pure", ssl_disabled=TLS == "plain", allow_local_infile=True, get_warnings=True, **options)


def show(name, work):
    try:
        print(name, repr(work()))
    except mysql.connector.Error as error:
        print(name, "failed:", error.errno, error.sqlstate, error.msg)


def rows_of(cursor):
    if cursor.with_rows:
        names = [column[:2] for column in cursor.description]
        return names, cursor.fetchall()
    return cursor.rowcount, cursor.lastrowid


def ask(session, sql, args=None, **options):
    cursor = session.cursor(**options)
    try:
        cursor.execute(sql, args)
        return rows_of(cursor), cursor.warnings
    finally:
        cursor.close()


def several(session, sql):
    cursor = session.cursor()
    seen = []
    try:
        cursor.execute(sql, map_results=True)
        seen.append(rows_of(cursor))
        while cursor.nextset():
            seen.append(rows_of(cursor))
    except (mysql.connector.Error, _mysql_connector.MySQLInterfaceError) as error:
        seen.append((error.errno, error.msg))
    session.cmd_reset_connection()
    return seen


def with_attribute(session):
    cursor = session.cursor()
    cursor.add_attribute("who", "ann")
    cursor.execute("select 1 as attributed")
    return cursor.fetchall()


def many(session):
    cursor = session.cursor()
    cursor.executemany("insert into `con t` values (%s, %s)", [(n, "x" * (n % 50)) for n in range(10, 5000)])
    return cursor.rowcount


def prepared(session):
    cursor = session.cursor(prepared=True)
    seen = []
    for number in range(3):
        cursor.execute("select ? + 1, ?, id from `con t` where id < ? order by id", (number, "ä€😀", 12))
        seen.append(cursor.fetchall())
    cursor.close()
    return seen


def called(session):
    cursor = session.cursor()
    out = cursor.callproc("con_p", (20, 0))
    return out, [result.fetchall() for result in cursor.stored_results()]


def loaded(session):
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("7001\tfrom a file\n7002\t\\N\n")
        file.flush()
        return ask(session, f"load data local infile '{file.name}' into table `con t`")


def streamed(session):
    cursor = session.cursor(buffered=False)
    cursor.execute("select seq, sha2(seq, 256) from seq_1_to_100000")
    total = 0
    for number, text in cursor:
        total = (total * 31 + number + int(text[:8], 16)) % (1 << 61)
    return total


def rolled_back(session):
    session.start_transaction(isolation_level="REPEATABLE READ")
    deleted = ask(session, "delete from `con t` where id = 2")
    inside = session.in_transaction
    session.rollback()
    return deleted, inside, session.in_transaction, ask(session, "select count(*) from `con t` where id = 2")


def main():
    session = connect()
    print("way", type(session).__name__, _mysql_connector.__name__ if WAY == "native" else "")
    show("types", lambda: ask(
        session, "select 1, null, 'ä€😀', 1.50, true, x'deadbeef', date '2026-01-31', time '12:34:56',"
        " cast('[1, 2]' as json)"))
    show("raw", lambda: ask(session, "select 1, null, 'ä', x'ff'", raw=True))
    show("named", lambda: ask(session, "select 1 as a, 2 as b", dictionary=True))
    show("error", lambda: ask(session, "select * from nowhere"))
    show("syntax", lambda: ask(session, "selec 1"))
    show("warning", lambda: ask(session, "select 1 / 0"))
    show("several", lambda: several(session, "select 1; select 2, 3; do 0; select 4"))
    show("broken", lambda: several(session, "select 1; selec 2; select 3"))
    show("attribute", lambda: with_attribute(session))
    show("create", lambda: ask(session, "create table `con t` (id int primary key auto_increment, note text)"))
    show("insert", lambda: ask(session, "insert into `con t` values (%s, %s), (2, null)", (1, "it's")))
    show("batch", lambda: many(session))
    show("twice", lambda: ask(session, "insert into `con t` values (1, null)"))
    show("prepared", lambda: prepared(session))
    show("not prepared", lambda: ask(session, "select ? from nowhere", (1,), prepared=True))
    show("procedure", lambda: ask(
        session, "create procedure con_p(in a int, inout b int) begin select a; select a + 1, 'x'; set b = a * 2; end"))
    show("called", lambda: called(session))
    show("loaded", lambda: loaded(session))
    show("read", lambda: ask(session, "select count(*), sum(length(note)) from `con t`"))
    show("streamed", lambda: streamed(session))
    show("large", lambda: len(ask(session, f"select repeat('y', {LARGE})")[0][1][0][0]))
    show("sent", lambda: ask(session, "select length(%s) as sent", ("z" * LARGE,)))
    show("rolled back", lambda: rolled_back(session))
    session.database = "other"
    show("database", lambda: ask(session, "select database()"))
    session.cmd_change_user("ann", "ann", "shop")
    show("changed", lambda: ask(session, "select database(), user() like 'ann@%'"))
    show("variable", lambda: ask(session, "set @mine = 1"))
    session.cmd_reset_connection()
    show("reset", lambda: ask(session, "select @mine, database()"))
    session.ping()
    show("drop", lambda: (ask(session, "drop table `con t`"), ask(session, "drop procedure con_p")))
    session.close()


main()
