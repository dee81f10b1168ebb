// What go-sql-driver sees of a MySQL server at 127.0.0.1: mysql PORT. Prints the same for the same server.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql"
)

var ctx = context.Background()

func main() {
	// Prepared by the server, and with arguments put into the text by the driver.
	for _, interpolate := range []string{"false", "true"} {
		database, err := sql.Open("mysql", "ann:ann@tcp(127.0.0.1:"+os.Args[1]+
			")/shop?multiStatements=true&interpolateParams="+interpolate)
		if err != nil {
			fmt.Println("open", err)
			os.Exit(1)
		}
		session, err := database.Conn(ctx)
		if err != nil {
			fmt.Println("connect", err)
			os.Exit(1)
		}
		fmt.Println("interpolated", interpolate)
		look(database, session)
		database.Close()
	}
}

func look(database *sql.DB, session *sql.Conn) {
	ask(session, "select 1, null, 'ä€😀', 1.50, true, x'deadbeef', date '2026-01-31'")
	ask(session, "select * from nowhere")
	ask(session, "selec 1")
	ask(session, "select 1; select 2, 3; select 4")
	do(session, "create table `go t` (id int primary key, note text)")
	for n := range make([]int, 10) {
		do(session, "insert into `go t` values (?, ?)", n, fmt.Sprint("it's ", n))
	}
	do(session, "insert into `go t` values (?, ?)", 1, "again")
	prepared, err := session.PrepareContext(ctx, "insert into `go t` values (?, ?)")
	fmt.Println("prepared", err)
	for n := 100; n < 1000; n++ {
		if _, err := prepared.ExecContext(ctx, n, strings.Repeat("x", n%50)); err != nil {
			fmt.Println("insert", err)
		}
	}
	fmt.Println("closed", prepared.Close())
	ask(session, "select id, note from `go t` where id < ?", 5)
	transaction, err := session.BeginTx(ctx, nil)
	fmt.Println("begun", err)
	_, err = transaction.ExecContext(ctx, "delete from `go t`")
	fmt.Println("deleted", err, transaction.Rollback())
	ask(session, "select count(*), sum(length(note)) from `go t`")

	rows, err := session.QueryContext(ctx, "select seq, sha2(seq, 256) from seq_1_to_50000")
	hash, seen := uint64(0), 0
	for err == nil && rows.Next() {
		var number uint64
		var text string
		err = rows.Scan(&number, &text)
		hash, seen = hash*31+number+uint64(text[0]), seen+1
	}
	fmt.Println("rows", seen, hash, err)

	limited, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	_, err = database.ExecContext(limited, "do sleep(5)")
	cancel()
	fmt.Println("timed out", err)
	do(session, "drop table `go t`")
}

func do(session *sql.Conn, text string, args ...any) {
	result, err := session.ExecContext(ctx, text, args...)
	if err != nil {
		fmt.Println("failed", err)
		return
	}
	changed, _ := result.RowsAffected()
	fmt.Println("changed", changed)
}

func ask(session *sql.Conn, text string, args ...any) {
	rows, err := session.QueryContext(ctx, text, args...)
	if err != nil {
		fmt.Println("failed", err)
		return
	}
	for more := true; more; more = rows.NextResultSet() {
		columns, _ := rows.ColumnTypes()
		for _, column := range columns {
			fmt.Print(column.Name(), ":", column.DatabaseTypeName(), " ")
		}
		fmt.Println()
		for rows.Next() {
			values := make([]sql.RawBytes, len(columns))
			places := make([]any, len(columns))
			for at := range values {
				places[at] = &values[at]
			}
			err := rows.Scan(places...)
			fmt.Printf("%q %v\n", values, err)
		}
	}
	fmt.Println(rows.Err())
}
