// Holds etcd's own concurrency.Mutex as it is told on standard input; the lines are described in interop/README.md.
// Arguments: the endpoint's URL, and the ttl of the session in milliseconds, which the session renews.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func main() {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Args[1]}})
	if err != nil {
		panic(err)
	}
	millis, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	// One session is one holder.
	session, err := concurrency.NewSession(client, concurrency.WithTTL(millis/1000))
	if err != nil {
		panic(err)
	}
	fmt.Println("ready")

	held := map[string]*concurrency.Mutex{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		command, name, _ := strings.Cut(lines.Text(), " ")
		fmt.Println(answer(session, held, command, name))
	}
	session.Close()
}

func answer(session *concurrency.Session, held map[string]*concurrency.Mutex, command, name string) string {
	ctx := context.Background()
	var err error
	switch command {
	case "try", "acquire":
		lock := concurrency.NewMutex(session, name)
		if command == "try" {
			err = lock.TryLock(ctx)
		} else {
			err = lock.Lock(ctx)
		}
		if errors.Is(err, concurrency.ErrLocked) {
			return "busy"
		}
		if err == nil {
			held[name] = lock
		}
	case "release":
		err = held[name].Unlock(ctx)
		if errors.Is(err, concurrency.ErrLockReleased) {
			return "lost"
		}
	default:
		return "error no such command"
	}
	if err != nil {
		return "error " + strings.ReplaceAll(err.Error(), "\n", " ")
	}
	return "ok"
}
