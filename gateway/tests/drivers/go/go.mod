module tidegate.test/drivers

go 1.19

require (
	github.com/go-sql-driver/mysql v1.7.1
	github.com/jackc/pgx/v5 v5.5.5
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20221227161230-091c0ba34f0a // indirect
	golang.org/x/crypto v0.17.0 // indirect
	golang.org/x/text v0.14.0 // indirect
)
