"""Logs in to 127.0.0.1 as ann, and is gone without a FIN or a reset: vanish.py postgres|mysql PORT.

A socket in repair mode is closed without a word, which the capability CAP_NET_ADMIN is needed for. Prints whether it
vanished."""

import os
import socket
import sys

TCP_REPAIR = 19


def login(protocol, port):
    if protocol == "postgres":
        import psycopg2

        session = psycopg2.connect(host="127.0.0.1", port=port, user="ann", password="ann", dbname="shop")
        return session, socket.socket(fileno=os.dup(session.fileno()))
    import pymysql

    session = pymysql.connect(host="127.0.0.1", port=port, user="ann", password="ann", database="shop")
    return session, session._sock


def main():
    session, connection = login(sys.argv[1], int(sys.argv[2]))
    try:
        connection.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    except PermissionError:
        print("not permitted")
        return
    print("vanished", flush=True)
    # Nothing says goodbye in the protocol either.
    os._exit(0)


main()
