"""How PyMySQL gets past caching_sha2_password at 127.0.0.1: sha2.py false|skip-verify PORT, where the first is whether
it uses TLS. Prints how it was let in, or what it was told."""

import sys

import pymysql


def login(password, query):
    tls = {"check_hostname": False} if sys.argv[1] == "skip-verify" else None
    try:
        session = pymysql.connect(
            host="127.0.0.1", port=int(sys.argv[2]), user="ann", password=password, database="shop", ssl=tls)
    except pymysql.Error as error:
        return str(error.args[0])
    cursor = session.cursor()
    cursor.execute(query)
    row = cursor.fetchone()
    session.close()
    return ", ".join(map(str, row))


def main():
    print("first", login("ann", "select how(), 42"))
    print("again", login("ann", "select how(), 42"))
    print("wrong", login("bob", "select how(), 42"))
    login("ann", "select forget()")
    print("wrong", login("bob", "select how(), 42"))


main()
