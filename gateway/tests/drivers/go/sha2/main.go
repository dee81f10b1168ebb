// How go-sql-driver gets past caching_sha2_password at 127.0.0.1: sha2 false|skip-verify PORT, where the first is
// whether it uses TLS. Prints how it was let in, or what it was told.
package main

import (
	"database/sql"
	"errors"
	"fmt"
	"os"

	"github.com/go-sql-driver/mysql"
)

func main() {
	fmt.Println("first", login("ann", "select how(), ?", 42))
	fmt.Println("again", login("ann", "select how(), ?", 42))
	fmt.Println("wrong", login("bob", "select how(), ?", 42))
	login("ann", "select forget(), ?", 1)
	fmt.Println("wrong", login("bob", "select how(), ?", 42))
}

func login(password, query string, number int) string {
	database, err := sql.Open("mysql", "ann:"+password+"@tcp(127.0.0.1:"+os.Args[2]+")/shop?tls="+os.Args[1])
	if err != nil {
		return err.Error()
	}
	defer database.Close()
	var how, sum string
	err = database.QueryRow(query, number).Scan(&how, &sum)
	var told *mysql.MySQLError
	if errors.As(err, &told) {
		return fmt.Sprint(told.Number)
	}
	if err != nil {
		return err.Error()
	}
	return how + ", " + sum
}
