// Holds Redisson's RLock as it is told on standard input; the lines are described in interop/README.md.
// Arguments: the server's address as a URL, and the lease in milliseconds, which Redisson's watchdog renews.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

public class Driver {
    public static void main(String[] arguments) throws Exception {
        Config config = new Config();
        config.setLockWatchdogTimeout(Long.parseLong(arguments[1]));
        config.setThreads(2);
        config.setNettyThreads(2);
        config.useSingleServer().setAddress(arguments[0]).setConnectionMinimumIdleSize(2);
        RedissonClient redisson = Redisson.create(config);
        System.out.println("ready");

        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            try {
                System.out.println(answer(redisson, line.split(" ", 2)));
            } catch (Exception e) {
                System.out.println("error " + e);
            }
        }
        redisson.shutdown();
    }

    // Everything happens on the main thread, whose id is 1: the owner of all holds is `<id of the client>:1`.
    private static String answer(RedissonClient redisson, String[] words) {
        if (words[0].equals("owner")) {
            return redisson.getId();
        }
        RLock lock = redisson.getLock(words[1]);
        switch (words[0]) {
            case "try":
                return lock.tryLock() ? "ok" : "busy";
            case "acquire":
                lock.lock();
                return "ok";
            case "count":
                return Integer.toString(lock.getHoldCount());
            case "release":
                try {
                    lock.unlock();
                    return "ok";
                } catch (IllegalMonitorStateException e) {
                    return "lost";
                }
            default:
                return "error no such command";
        }
    }
}
