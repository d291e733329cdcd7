// Holds Curator's InterProcessMutex as it is told on standard input; the lines are described in interop/README.md.
// Arguments: the servers' hosts, and the session's timeout in milliseconds. A lock's name is its path.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;
import org.apache.zookeeper.KeeperException.SessionExpiredException;

public class Driver {
    public static void main(String[] arguments) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
                arguments[0], Integer.parseInt(arguments[1]), 15_000, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        System.out.println("ready");

        Map<String, InterProcessMutex> locks = new HashMap<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split(" ", 2);
            InterProcessMutex lock = locks.computeIfAbsent(words[1], path -> new InterProcessMutex(client, path));
            try {
                System.out.println(answer(lock, words[0]));
            } catch (Exception e) {
                System.out.println("error " + e);
            }
        }
        client.close();
    }

    private static String answer(InterProcessMutex lock, String command) throws Exception {
        switch (command) {
            case "try":
                return lock.acquire(0, TimeUnit.MILLISECONDS) ? "ok" : "busy";
            case "acquire":
                lock.acquire();
                return "ok";
            case "release":
                try {
                    lock.release();
                    return "ok";
                } catch (IllegalMonitorStateException | SessionExpiredException e) {
                    return "lost";
                }
            default:
                return "error no such command";
        }
    }
}
