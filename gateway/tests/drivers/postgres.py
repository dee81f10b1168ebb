"""What psycopg2 sees of a PostgreSQL server at 127.0.0.1: postgres.py PORT. Prints the same for the same server."""

import sys
import threading

import psycopg2
import psycopg2.extras

LARGE = 17_000_000


def connect():
    return psycopg2.connect(host="127.0.0.1", port=sys.argv[1], user="ann", password="ann", dbname="shop")


def show(name, work):
    try:
        print(name, repr(work()))
    except psycopg2.Error as error:
        print(name, "failed:", error.pgcode, (error.pgerror or "").splitlines()[:1])


def main():
    session = connect()
    session.autocommit = True
    cursor = session.cursor()

    def ask(sql, *args):
        cursor.execute(sql, *args)
        names = [(column.name, column.type_code) for column in cursor.description or []]
        return names, cursor.fetchall() if names else cursor.rowcount, cursor.statusmessage

    show("types", lambda: ask("select 1::int2, null, 'ä€😀', 1.50::numeric, true, '\\xdeadbeef'::bytea::text, '{1,null}'::int[]"))
    show("error", lambda: ask("select 1/0"))
    show("syntax", lambda: ask("selec 1"))
    show("several", lambda: ask("select 1; select 2"))
    show("empty", lambda: ask(""))
    show("create", lambda: ask('create table "py t" (id int primary key, note text)'))
    show("insert", lambda: ask('insert into "py t" values (%s, %s), (2, null)', (1, "it's")))
    show("batch", lambda: psycopg2.extras.execute_values(
        cursor, 'insert into "py t" values %s', [(n, "x" * (n % 50)) for n in range(10, 5000)]))
    show("twice", lambda: ask('insert into "py t" values (1, null)'))
    show("read", lambda: ask('select count(*), sum(length(note)) from "py t"'))
    show("rows", lambda: hash_of(ask("select g, md5(g::text) from generate_series(1, 100000) g")[1]))
    show("large", lambda: len(ask(f"select repeat('y', {LARGE})")[1][0][0]))

    session.autocommit = False
    show("in transaction", lambda: ask('delete from "py t" where id = 2'))
    session.rollback()
    show("rolled back", lambda: ask('select count(*) from "py t" where id = 2'))
    show("fails", lambda: ask("select 1/0"))
    show("aborted", lambda: ask("select 1"))
    session.rollback()
    named = session.cursor("portal")
    named.itersize = 100
    named.execute("select generate_series(1, 1000)")
    print("named cursor", sum(row[0] for row in named))
    session.commit()
    session.autocommit = True

    with open("/dev/null", "w") as nothing:
        cursor.copy_expert('copy (select * from "py t" order by id) to stdout', nothing)
    print("copied", cursor.rowcount)

    cancel = threading.Timer(0.5, session.cancel)
    cancel.start()
    show("cancelled", lambda: ask("select pg_sleep(60)"))
    cancel.join()
    show("after it", lambda: ask("select 1"))
    show("drop", lambda: ask('drop table "py t"'))
    session.close()


def hash_of(rows):
    total = 0
    for number, text in rows:
        total = (total * 31 + number + int(text[:8], 16)) % (1 << 61)
    return len(rows), total


main()
