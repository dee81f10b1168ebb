// A node of PD's resource control, of PD's own client, that does nothing but be charged: one operation of 1 RU after
// another, all logged as `load-node` logs its own (tests/src/process/log.rs).
//
// node ADDRESS[,ADDRESS...] NUMBER GROUP LOG. On SIGTERM it admits nothing more and stays, so that its client may report
// what it has not reported; a second one ends it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	pd "github.com/tikv/pd/client"
	"github.com/tikv/pd/client/resource_group/controller"
	"golang.org/x/sys/unix"
)

// After a refusal, as in load-node.
const retry = 50 * time.Millisecond

// A write of one request unit.
type write struct{}

func (write) IsWrite() bool        { return true }
func (write) WriteBytes() uint64   { return 0 }
func (write) ReplicaNumber() int64 { return 1 }
func (write) StoreID() uint64      { return 1 }
func (write) ReadBytes() uint64    { return 0 }
func (write) KVCPU() time.Duration { return 0 }
func (write) Succeed() bool        { return true }
func (write) RequestSize() uint64  { return 0 }
func (write) ResponseSize() uint64 { return 0 }

// Microseconds on the monotonic clock of the machine, which all processes share.
func micros() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return now.Nano() / 1000
}

func run(addresses []string, number uint64, group, path string) error {
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	ended, end := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer end()
	client, err := pd.NewClientWithContext(context.Background(), addresses, pd.SecurityOption{})
	if err != nil {
		return err
	}
	defer client.Close()
	price := controller.RequestUnitConfig{WriteBaseCost: 1}
	rights, err := controller.NewResourceGroupController(context.Background(), number, client, &price)
	if err != nil {
		return err
	}
	rights.Start(context.Background())
	fmt.Fprintf(log, "B %d none .\n", number)
	for ended.Err() == nil {
		asked := micros()
		charged, _, _, _, err := rights.OnRequestWait(ended, group, write{})
		if err != nil {
			select {
			case <-ended.Done():
			case <-time.After(retry):
			}
			continue
		}
		admitted := micros()
		cost := int64((charged.RRU + charged.WRU) * 1e6)
		fmt.Fprintf(log, "A %s %d %d %d %d %d .\n", group, admitted, micros(), cost, cost, admitted-asked)
		if _, err := rights.OnResponse(group, write{}, write{}); err != nil {
			return err
		}
		fmt.Fprintf(log, "C %s %d .\n", group, micros())
	}
	end()
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGTERM)
	<-again
	return nil
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: node ADDRESS[,ADDRESS...] NUMBER GROUP LOG")
		os.Exit(2)
	}
	number, err := strconv.ParseUint(os.Args[2], 10, 64)
	if err == nil {
		err = run(strings.Split(os.Args[1], ","), number, os.Args[3], os.Args[4])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}
