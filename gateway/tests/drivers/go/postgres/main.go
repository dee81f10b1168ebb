// What pgx sees of a PostgreSQL server at 127.0.0.1: postgres PORT. Prints the same for the same server.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var ctx = context.Background()

func main() {
	url := "postgres://ann:ann@127.0.0.1:" + os.Args[1] + "/shop"
	// Named statements and a cache of them, descriptions only, and the simple protocol.
	for _, mode := range []string{"cache_statement", "cache_describe", "exec", "simple_protocol"} {
		session, err := pgx.Connect(ctx, url+"?default_query_exec_mode="+mode)
		if err != nil {
			fmt.Println("connect", err)
			os.Exit(1)
		}
		fmt.Println("mode", mode)
		look(session)
		session.Close(ctx)
	}
}

func look(session *pgx.Conn) {
	ask(session, "select 1::int2, null::text, 'ä€😀', 1.5::float8, true, '\\xdeadbeef'::bytea")
	ask(session, "select 1/0")
	ask(session, "selec 1")
	ask(session, `create table "go t" (id int primary key, note text)`)
	for n := range make([]int, 10) {
		ask(session, `insert into "go t" values ($1, $2)`, n, fmt.Sprint("it's ", n))
	}
	ask(session, `insert into "go t" values ($1, $2)`, 1, "again")

	// One round trip for all of them.
	batch := &pgx.Batch{}
	for n := 100; n < 200; n++ {
		batch.Queue(`insert into "go t" values ($1, $2)`, n, strings.Repeat("x", n%50))
	}
	batch.Queue(`select count(*) from "go t"`)
	results := session.SendBatch(ctx, batch)
	for range make([]int, 100) {
		tag, err := results.Exec()
		if err != nil || tag.RowsAffected() != 1 {
			fmt.Println("batch", tag, reason(err))
		}
	}
	var count int
	fmt.Println("batch", results.QueryRow().Scan(&count), count, results.Close())

	copied, err := session.CopyFrom(ctx, pgx.Identifier{"go t"}, []string{"id", "note"},
		pgx.CopyFromSlice(5000, func(n int) ([]any, error) { return []any{1000 + n, "copied"}, nil }))
	fmt.Println("copied", copied, reason(err))

	transaction, _ := session.Begin(ctx)
	ask(session, `delete from "go t"`)
	ask(session, "select 1/0")
	ask(session, "select 1")
	fmt.Println("rolled back", transaction.Rollback(ctx))
	ask(session, `select count(*), sum(length(note)) from "go t"`)

	rows, _ := session.Query(ctx, "select g, md5(g::text) from generate_series(1, 50000) g")
	hash, seen := uint64(0), 0
	for rows.Next() {
		var number int32
		var text string
		if err := rows.Scan(&number, &text); err != nil {
			fmt.Println("scan", err)
		}
		hash, seen = hash*31+uint64(number)+uint64(text[0]), seen+1
	}
	fmt.Println("rows", seen, hash, reason(rows.Err()))

	// Its end of patience sends a request to cancel, and closes the connection.
	other, _ := pgx.Connect(ctx, session.Config().ConnString())
	limited, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	_, err = other.Exec(limited, "select pg_sleep(60)")
	cancel()
	fmt.Println("timed out", errors.Is(err, context.DeadlineExceeded), other.IsClosed())
	ask(session, `drop table "go t"`)
}

func ask(session *pgx.Conn, sql string, args ...any) {
	rows, err := session.Query(ctx, sql, args...)
	if err != nil {
		fmt.Println("failed", reason(err))
		return
	}
	for rows.Next() {
		values, err := rows.Values()
		fmt.Printf("%#v %v\n", values, err)
	}
	fmt.Println(rows.CommandTag(), reason(rows.Err()))
}

func reason(err error) string {
	var told *pgconn.PgError
	if errors.As(err, &told) {
		return told.Code + " " + told.Message
	}
	return fmt.Sprint(err)
}
