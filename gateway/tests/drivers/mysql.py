"""What PyMySQL sees of a MySQL server at 127.0.0.1: mysql.py PORT. Prints the same for the same server."""

import sys

import pymysql

LARGE = 17_000_000


def connect(**options):
    return pymysql.connect(
        host="127.0.0.1", port=int(sys.argv[1]), user="ann", password="ann", database="shop",
        autocommit=True, charset="utf8mb4", **options)


def show(name, work):
    try:
        print(name, repr(work()))
    except pymysql.Error as error:
        print(name, "failed:", error.args)


def main():
    session = connect(client_flag=pymysql.constants.CLIENT.MULTI_STATEMENTS)
    cursor = session.cursor()

    def ask(sql, *args):
        affected = cursor.execute(sql, *args)
        names = [column[:2] for column in cursor.description or []]
        return names, affected, cursor.fetchall()

    def all_of(sql):
        results = [ask(sql)]
        while cursor.nextset():
            results.append((cursor.rowcount, cursor.fetchall()))
        return results

    show("types", lambda: ask("select 1, null, 'ä€😀', 1.50, true, x'deadbeef', date '2026-01-31', time '12:34:56'"))
    show("error", lambda: ask("select * from nowhere"))
    show("syntax", lambda: ask("selec 1"))
    show("several", lambda: all_of("select 1; select 2, 3; do 0; select 4"))
    show("broken", lambda: all_of("select 1; selec 2; select 3"))
    show("empty", lambda: ask(""))
    show("create", lambda: ask("create table `py t` (id int primary key, note text)"))
    show("insert", lambda: ask("insert into `py t` values (%s, %s), (2, null)", (1, "it's")))
    show("batch", lambda: cursor.executemany(
        "insert into `py t` values (%s, %s)", [(n, "x" * (n % 50)) for n in range(10, 5000)]))
    show("twice", lambda: ask("insert into `py t` values (1, null)"))
    show("read", lambda: ask("select count(*), sum(length(note)) from `py t`"))
    show("rows", lambda: hash_of(ask("select seq, sha2(seq, 256) from seq_1_to_100000")[2]))
    show("large", lambda: len(ask(f"select repeat('y', {LARGE})")[2][0][0]))
    session.begin()
    show("in transaction", lambda: ask("delete from `py t` where id = 2"))
    session.rollback()
    show("rolled back", lambda: ask("select count(*) from `py t` where id = 2"))
    streamed = connect(cursorclass=pymysql.cursors.SSCursor)
    rows = streamed.cursor()
    rows.execute("select seq from seq_1_to_100000")
    print("streamed", sum(row[0] for row in rows))
    session.select_db("other")
    show("database", lambda: ask("select database()"))
    session.ping(reconnect=False)
    session.select_db("shop")
    show("drop", lambda: ask("drop table `py t`"))
    session.close()


def hash_of(rows):
    total = 0
    for number, text in rows:
        total = (total * 31 + number + int(text[:8], 16)) % (1 << 61)
    return len(rows), total


main()
