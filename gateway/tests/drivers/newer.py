"""What libpq 18 sees of a PostgreSQL server with TLS at localhost: newer.py AUTHORITY PORT. Prints the same for the
same server. Needs psycopg 3 with its own libpq."""

import sys
import threading

import psycopg

AUTHORITY, PORT = sys.argv[1:3]
TLS = f"sslmode=verify-full sslrootcert={AUTHORITY}"
ENCRYPTED = {"in the clear": "sslmode=disable", "asked for": f"{TLS} sslnegotiation=postgres",
             "at once": f"{TLS} sslnegotiation=direct"}


def connect(how, version):
    # Channel binding needs one TLS from end to end.
    return psycopg.connect(
        f"host=localhost hostaddr=127.0.0.1 port={PORT} user=ann password=ann dbname=shop channel_binding=disable "
        f"max_protocol_version={version} {ENCRYPTED[how]}", autocommit=True)


def cancelled(session, cancel):
    timer = threading.Timer(0.7, cancel)
    timer.start()
    try:
        return session.execute("select pg_sleep(60)").fetchall()
    except psycopg.Error as error:
        return error.sqlstate, error.diag.message_primary
    finally:
        timer.join()


def main():
    for how in ENCRYPTED:
        for version in ["3.0", "latest"]:
            session = connect(how, version)
            print(how, version, session.pgconn.full_protocol_version, bool(session.pgconn.ssl_in_use))
            print(session.execute("select 1::int2, null, 'ä€😀', %s::numeric", ("1.50",), prepare=True).fetchall())
            print(session.execute("select %b::int8, %b::bytea", (7, b"\xde\xad"), binary=True).fetchall())
            with session.pipeline():
                cursors = [session.execute("select %s::int * 2", (n,)) for n in range(50)]
            print(sum(cursor.fetchone()[0] for cursor in cursors))
            with session.cursor().copy("copy (select generate_series(1, 1000)) to stdout") as copy:
                print(sum(len(block) for block in copy))
            print(cancelled(session, session.cancel), cancelled(session, session.cancel_safe))
            print(session.execute("select 40 + 2").fetchone())
            session.close()


main()
