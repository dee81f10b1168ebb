// A MySQL server that authenticates with caching_sha2_password: mysqld FOLDER. It writes a certificate and its key to
// FOLDER (cert.pem, key.pem), prints its port, and ends when its input does. It lets "ann" in with the password "ann",
// plain and under TLS, and answers questions about the session and numbers.
package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/server"
)

const user, password = "ann", "ann"

func main() {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(err)
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	must(err)
	certificate := sign(key)
	folder := os.Args[1]
	private := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	must(os.WriteFile(filepath.Join(folder, "key.pem"), private, 0o600))
	must(os.WriteFile(filepath.Join(folder, "cert.pem"), chain, 0o600))
	pair, err := tls.X509KeyPair(chain, private)
	must(err)
	publicKey := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	host := &host{
		key:       key,
		publicKey: publicKey,
		settings: server.NewServer("8.0.36", mysql.DEFAULT_COLLATION_ID, mysql.AUTH_CACHING_SHA2_PASSWORD, publicKey,
			&tls.Config{Certificates: []tls.Certificate{pair}}),
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	go func() {
		_, _ = io.Copy(io.Discard, bufio.NewReader(os.Stdin))
		os.Exit(0)
	}()
	for {
		client, err := listener.Accept()
		must(err)
		go host.serve(client)
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func sign(key *rsa.PrivateKey) []byte {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "tidegate tests"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(err)
	return certificate
}

type host struct {
	key       *rsa.PrivateKey
	publicKey []byte
	settings  *server.Server
	// Whether the next change of user is the first since the password was forgotten.
	known atomic.Bool
}

// The server asks for the password itself only when it cannot do with the scramble.
type credentials struct {
	full bool
}

func (c *credentials) CheckUsername(name string) (bool, error) {
	return name == user, nil
}

func (c *credentials) GetCredential(name string) (string, bool, error) {
	c.full = true
	return password, name == user, nil
}

type session struct {
	server.EmptyHandler
	host     *host
	conn     *server.Conn
	how      string
	database string
}

func (h *host) serve(client net.Conn) {
	defer client.Close()
	asked := &credentials{}
	session := &session{host: h}
	conn, err := server.NewCustomizedConn(client, h.settings, asked, session)
	if err != nil {
		return
	}
	h.known.Store(true)
	session.conn, session.how = conn, session.way(conn, asked.full)
	for !conn.Closed() {
		if conn.HandleCommand() != nil {
			return
		}
	}
}

func (s *session) isTLS(conn *server.Conn) bool {
	_, secure := conn.Conn.Conn.(*tls.Conn)
	return secure
}

// How the client was let in.
func (s *session) way(conn *server.Conn, full bool) string {
	how, over := "fast", "plain"
	if full {
		how = "full"
	}
	if s.isTLS(conn) {
		over = "tls"
	}
	return how + " " + over
}

func (s *session) UseDB(name string) error {
	s.database = name
	return nil
}

func (s *session) HandleQuery(query string) (*mysql.Result, error) {
	return s.answer(query, false)
}

func (s *session) HandleStmtPrepare(query string) (int, int, interface{}, error) {
	return strings.Count(query, "?"), 1, nil, nil
}

func (s *session) HandleStmtExecute(_ interface{}, query string, args []interface{}) (*mysql.Result, error) {
	for _, arg := range args {
		query = strings.Replace(query, "?", text(arg), 1)
	}
	return s.answer(query, true)
}

func (s *session) HandleStmtClose(_ interface{}) error {
	return nil
}

func text(value interface{}) string {
	if bytes, is := value.([]byte); is {
		return string(bytes)
	}
	return fmt.Sprint(value)
}

func (s *session) answer(query string, binary bool) (*mysql.Result, error) {
	query = strings.TrimSuffix(strings.TrimSpace(query), ";")
	columns := strings.TrimPrefix(strings.ToLower(query), "select ")
	if len(columns) == len(query) {
		return &mysql.Result{Status: mysql.SERVER_STATUS_AUTOCOMMIT}, nil
	}
	var names []string
	var row []interface{}
	for _, column := range strings.Split(columns, ",") {
		column = strings.TrimSpace(column)
		names, row = append(names, column), append(row, s.value(column))
	}
	rows, err := mysql.BuildSimpleResultset(names, [][]interface{}{row}, binary)
	if err != nil {
		return nil, err
	}
	return &mysql.Result{Status: mysql.SERVER_STATUS_AUTOCOMMIT, Resultset: rows}, nil
}

func (s *session) value(column string) interface{} {
	switch column {
	case "how()":
		return s.how
	case "forget()":
		s.host.settings.InvalidateCache(user, s.conn.LocalAddr().String())
		s.host.known.Store(false)
		return "forgotten"
	case "@@max_allowed_packet":
		return 1 << 26
	case "@@wait_timeout":
		return 28800
	}
	if number, err := strconv.Atoi(column); err == nil {
		return number
	}
	return column
}

// COM_CHANGE_USER: a conversation as at the login, with a scramble of its own, as MySQL has it.
func (s *session) HandleOtherCommand(command byte, data []byte) error {
	if command != mysql.COM_CHANGE_USER {
		return s.EmptyHandler.HandleOtherCommand(command, data)
	}
	name, _, _ := bytes.Cut(data, []byte{0})
	scramble := make([]byte, 20)
	_, err := rand.Read(scramble)
	must(err)
	for at := range scramble {
		scramble[at] = scramble[at]&0x3f + 0x21
	}
	if err := s.say(0xfe, append(append([]byte("caching_sha2_password\x00"), scramble...), 0)); err != nil {
		return err
	}
	mixed, err := s.conn.ReadPacket()
	if err != nil {
		return err
	}
	denied := mysql.NewDefaultError(mysql.ER_ACCESS_DENIED_ERROR, string(name), "localhost", "YES")
	if string(name) != user {
		return denied
	}
	if s.host.known.Load() {
		if !bytes.Equal(mixed, mysql.CalcCachingSha2Password(scramble, password)) {
			return denied
		}
		s.how = s.way(s.conn, false)
		return s.say(1, []byte{3})
	}
	if err := s.say(1, []byte{4}); err != nil {
		return err
	}
	given, err := s.conn.ReadPacket()
	if err != nil {
		return err
	}
	if !s.isTLS(s.conn) {
		if bytes.Equal(given, []byte{2}) {
			if err := s.say(1, s.host.publicKey); err != nil {
				return err
			}
			if given, err = s.conn.ReadPacket(); err != nil {
				return err
			}
		}
		if given, err = rsa.DecryptOAEP(sha1.New(), rand.Reader, s.host.key, given, nil); err != nil {
			return denied
		}
		for at := range given {
			given[at] ^= scramble[at%len(scramble)]
		}
	}
	if string(given) != password+"\x00" {
		return denied
	}
	s.host.known.Store(true)
	s.how = s.way(s.conn, true)
	return nil
}

func (s *session) say(first byte, rest []byte) error {
	return s.conn.WritePacket(append([]byte{0, 0, 0, 0, first}, rest...))
}
