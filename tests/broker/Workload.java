import java.util.Map;

/**
 * A client of a real broker: {@code Workload <subcommand> namesrv=host:port name=value ...}.
 *
 * <p>The last line on standard output is one JSON object; the exit code is 0 only if it was printed.
 */
public final class Workload {
    private Workload() {}

    public static void main(String[] args) {
        int code = 1;
        try {
            Map<String, Object> result = run(args);
            System.out.println();
            System.out.println(Json.write(result));
            System.out.flush();
            code = 0;
        } catch (Throwable e) {
            e.printStackTrace();
        }
        // Client threads that are not daemons must not hold up the end.
        System.exit(code);
    }

    private static Map<String, Object> run(String[] args) throws Exception {
        if (args.length == 0) {
            throw new IllegalArgumentException("subcommands: send transactions delay consume query retry subscribe raw audit groups traces");
        }
        Arguments arguments = new Arguments(args, 1);
        Cluster cluster = new Cluster(arguments);
        switch (args[0]) {
            case "send":
                return new Sender(cluster, arguments).run();
            case "transactions":
                return new Transactions(cluster, arguments).run();
            case "delay":
                return new Delay(cluster, arguments).run();
            case "consume":
                return new Consumer(cluster, arguments).run();
            case "query":
                return new Query(cluster, arguments).run();
            case "retry":
                return new Retry(cluster, arguments).run();
            case "subscribe":
                return new Subscribe(cluster, arguments).run();
            case "raw":
                return new RawSender(cluster, arguments).run();
            case "audit":
                return new Audit(cluster, arguments).run();
            case "groups":
                return new Groups(cluster, arguments).run();
            case "traces":
                return new Traces(cluster, arguments).run();
            default:
                throw new IllegalArgumentException("unknown subcommand " + args[0]);
        }
    }
}
