// Holds redsync's Mutex on one Redis as it is told on standard input; the lines are described in interop/README.md.
// Arguments: the server's URL, and the expiry in milliseconds, which nobody renews.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func main() {
	options, err := redis.ParseURL(os.Args[1])
	if err != nil {
		panic(err)
	}
	lease, err := time.ParseDuration(os.Args[2] + "ms")
	if err != nil {
		panic(err)
	}
	locks := redsync.New(goredis.NewPool(redis.NewClient(options)))
	fmt.Println("ready")

	held := map[string]*redsync.Mutex{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		command, name, _ := strings.Cut(lines.Text(), " ")
		fmt.Println(answer(locks, lease, held, command, name))
	}
}

func answer(locks *redsync.Redsync, lease time.Duration, held map[string]*redsync.Mutex, command, name string) string {
	var err error
	switch command {
	case "try", "acquire":
		// It gives up after its tries, 50 to 250 ms apart; these are enough for an hour.
		lock := locks.NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(20_000))
		if command == "try" {
			err = lock.TryLock()
		} else {
			err = lock.Lock()
		}
		var taken *redsync.ErrTaken
		if errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
			return "busy"
		}
		if err == nil {
			held[name] = lock
		}
	case "release":
		var released bool
		released, err = held[name].Unlock()
		var taken *redsync.ErrTaken
		if errors.As(err, &taken) || errors.Is(err, redsync.ErrLockAlreadyExpired) || (err == nil && !released) {
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
