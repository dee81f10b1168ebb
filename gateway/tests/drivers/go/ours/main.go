// What go-sql-driver is told by a gateway of MySQL at 127.0.0.1 that answers by itself: ours PORT.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"

	_ "github.com/go-sql-driver/mysql"
)

func main() {
	database, err := sql.Open("mysql", "ann:ann@tcp(127.0.0.1:"+os.Args[1]+")/shop")
	if err != nil {
		fmt.Println("open", err)
		os.Exit(1)
	}
	ctx := context.Background()
	session, err := database.Conn(ctx)
	if err != nil {
		fmt.Println("connect", err)
		os.Exit(1)
	}
	const asks = "select current_resource_group()"
	fmt.Println("text:", group(session.QueryRowContext(ctx, asks)))
	prepared, err := session.PrepareContext(ctx, asks)
	if err != nil {
		fmt.Println("prepare", err)
		os.Exit(1)
	}
	for n := 0; n < 2; n++ {
		fmt.Println("prepared:", group(prepared.QueryRowContext(ctx)))
	}
	create, err := session.PrepareContext(ctx, "create resource group mine ru_per_sec = 1")
	if err != nil {
		fmt.Println("prepare", err)
		os.Exit(1)
	}
	_, err = create.ExecContext(ctx)
	fmt.Println("refused:", strings.HasPrefix(fmt.Sprint(err), "Error 1227"))
}

func group(row *sql.Row) string {
	var name string
	if err := row.Scan(&name); err != nil {
		return err.Error()
	}
	return name
}
