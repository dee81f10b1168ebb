// What pgx is told of the cost of a statement by a gateway at 127.0.0.1: explain PORT. A line for each way to send it.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
)

var ctx = context.Background()

func main() {
	url := "postgres://ann:ann@127.0.0.1:" + os.Args[1] + "/shop?default_query_exec_mode="
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		session, err := pgx.Connect(ctx, url+mode)
		if err != nil {
			fmt.Println("connect", err)
			os.Exit(1)
		}
		told := ""
		// The second time the statement is in the driver's cache.
		for range make([]int, 2) {
			told = explain(session)
		}
		fmt.Println(mode + ": " + told)
		session.Close(ctx)
	}
}

// The names of the parts, and how many rows the statement has changed.
func explain(session *pgx.Conn) string {
	if _, err := session.Exec(ctx, "create temp table t as select g from generate_series(1, 9) g"); err != nil {
		return err.Error()
	}
	defer session.Exec(ctx, "drop table t")
	rows, err := session.Query(ctx, "explain ru update t set g = g + 1 where g > $1", 2)
	if err != nil {
		return err.Error()
	}
	names, changed, sum, total := []string{}, "no rows", 0.0, 0.0
	for rows.Next() {
		var part, used string
		if err := rows.Scan(&part, &total, &used); err != nil {
			return err.Error()
		}
		names = append(names, part)
		sum += total
		if part == "write" {
			_, changed, _ = strings.Cut(used, ", ")
		}
	}
	if rows.Err() != nil {
		return rows.Err().Error()
	}
	// The last part is the sum of the others.
	if difference := sum - 2*total; total <= 0 || difference > 1e-3 || difference < -1e-3 {
		return fmt.Sprint("total ", total, " of ", sum)
	}
	return strings.Join(names, " ") + ", " + changed
}
