import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Timer;
import java.util.TimerTask;

/**
 * What the JDBC drivers of PostgreSQL and MariaDB see of a server at 127.0.0.1: Jdbc.java postgres|mysql PORT. Prints
 * the same for the same server; with explain or explain-mysql, what a driver is told of costs by a gateway there, and
 * with ours-mysql of its group.
 */
class Jdbc {
    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "postgres" -> postgres(args[1]);
            case "mysql" -> mysql(args[1]);
            case "explain" -> explain(args[1]);
            case "explain-mysql" -> explainMysql(args[1]);
            case "ours-mysql" -> oursMysql(args[1]);
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    static void postgres(String port) throws Exception {
        String url = "jdbc:postgresql://127.0.0.1:" + port + "/shop?user=ann&password=ann";
        try (Connection session = DriverManager.getConnection(url)) {
            Seen seen = new Seen(session);
            seen.ask("select 1::int2, null, 'ä€😀', 1.50::numeric, true, '\\xdeadbeef'::bytea, date '2026-01-31'");
            seen.ask("select 1/0");
            seen.ask("selec 1");
            seen.ask("select 1; select 2; select 3");
            seen.ask("");
            seen.ask("create table \"java t\" (id int primary key, note text)");
            writeAndRead(session, seen, "\"java t\"");
            try (PreparedStatement insert = session.prepareStatement("insert into \"java t\" values (?, ?)")) {
                for (int n = 5000; n > 4990; n--) {
                    insert.setInt(1, n == 4995 ? 1 : n);
                    insert.setString(2, "y");
                    insert.addBatch();
                }
                insert.executeBatch();
            } catch (BatchUpdateException error) {
                System.out.println("batch failed " + error.getSQLState() + " after " + error.getUpdateCounts().length);
            }
            session.setAutoCommit(false);
            fetch(session, "select g, md5(g::text) from generate_series(1, 20000) g");
            seen.ask("delete from \"java t\"");
            session.rollback();
            seen.ask("select count(*), sum(length(note)) from \"java t\"");
            seen.ask("select 1/0");
            seen.ask("select 1");
            session.rollback();
            session.setAutoCommit(true);
            try (Statement large = session.createStatement();
                    ResultSet rows = large.executeQuery("select repeat('y', 17000000)")) {
                rows.next();
                System.out.println("large " + rows.getString(1).length());
            }
            try (Statement slow = session.createStatement()) {
                new Timer(true).schedule(new TimerTask() {
                    @Override
                    public void run() {
                        try {
                            slow.cancel();
                        } catch (SQLException error) {
                            System.out.println("cancel failed " + error.getMessage());
                        }
                    }
                }, 500);
                slow.execute("select pg_sleep(60)");
            } catch (SQLException error) {
                System.out.println("cancelled " + error.getSQLState());
            }
            seen.ask("drop table \"java t\"");
        }
    }

    /** What a gateway says a statement cost: a line for each way to send it. */
    static void explain(String port) throws Exception {
        String url = "jdbc:postgresql://127.0.0.1:" + port + "/shop?user=ann&password=ann&preferQueryMode=";
        for (String mode : new String[] {"simple", "extended", "extendedForPrepared", "extendedCacheEverything"}) {
            try (Connection session = DriverManager.getConnection(url + mode)) {
                System.out.println(mode + ": " + cost(session, 0));
            }
        }
        try (Connection session = DriverManager.getConnection(url + "extended")) {
            session.setAutoCommit(false);
            System.out.println("in a transaction: " + cost(session, 0));
            System.out.println("in portions: " + cost(session, 100));
        }
    }

    /** The same of MariaDB's driver. */
    static void explainMysql(String port) throws Exception {
        inWays(port, Jdbc::cost);
    }

    /** What MariaDB's driver gets for statements that a gateway answers itself. */
    static void oursMysql(String port) throws Exception {
        inWays(port, Jdbc::group);
    }

    interface Told {
        String by(Connection session, int portion) throws SQLException;
    }

    /** A line for each way in which MariaDB's driver sends a statement. */
    static void inWays(String port, Told told) throws SQLException {
        String url = "jdbc:mariadb://127.0.0.1:" + port + "/shop?user=ann&password=ann&useServerPrepStmts=";
        String[][] ways = {{"text", "false"}, {"prepared", "true&disablePipeline=true"}, {"prepared at once", "true"}};
        for (String[] way : ways) {
            try (Connection session = DriverManager.getConnection(url + way[1])) {
                System.out.println(way[0] + ": " + told.by(session, 0));
            }
        }
        try (Connection session = DriverManager.getConnection(url + "true")) {
            System.out.println("in portions: " + told.by(session, 1));
        }
    }

    /** The session's group, and why there is not another. */
    static String group(Connection session, int portion) throws SQLException {
        StringBuilder told = new StringBuilder();
        try (PreparedStatement select = session.prepareStatement("select current_resource_group()")) {
            select.setFetchSize(portion);
            for (int n = 0; n < 2; n++) {
                try (ResultSet rows = select.executeQuery()) {
                    while (rows.next()) {
                        told.append(rows.getString("current_resource_group()")).append(' ');
                    }
                }
            }
        }
        try (PreparedStatement create = session.prepareStatement("create resource group mine ru_per_sec = 1")) {
            create.execute();
        } catch (SQLException error) {
            told.append(error.getErrorCode());
        }
        return told.toString();
    }

    /** The names of the parts, and how many rows the statement has changed the last time. */
    static String cost(Connection session, int portion) throws SQLException {
        String told = "";
        try (PreparedStatement update = session.prepareStatement("explain ru update t set g = g + 1 where g > ?")) {
            update.setFetchSize(portion);
            // More than five executions make pgjdbc name the statement and take results in binary.
            for (int n = 0; n < 8; n++) {
                try (Statement make = session.createStatement()) {
                    make.execute("create temporary table if not exists t (g int)");
                    make.execute("delete from t");
                    make.execute("insert into t values (1), (2), (3), (4), (5), (6), (7), (8), (9)");
                }
                if (!session.getAutoCommit()) {
                    session.commit();
                }
                update.setInt(1, 2);
                StringBuilder parts = new StringBuilder();
                double sum = 0;
                double total = 0;
                String changed = "";
                ResultSet rows = update.executeQuery();
                while (rows.next()) {
                    parts.append(parts.isEmpty() ? "" : " ").append(rows.getString("part"));
                    total = rows.getDouble("ru");
                    sum += total;
                    if (rows.getString("part").equals("write")) {
                        changed = rows.getString("used").split(", ")[1];
                    }
                }
                told = total > 0 && Math.abs(sum - 2 * total) < 1e-3 ? parts + ", " + changed : total + " of " + sum;
            }
        }
        if (!session.getAutoCommit()) {
            session.rollback();
        }
        return told;
    }

    static void mysql(String port) throws Exception {
        for (String prepare : new String[] {"false", "true"}) {
            String url = "jdbc:mariadb://127.0.0.1:" + port + "/shop?user=ann&password=ann&allowMultiQueries=true"
                    + "&useServerPrepStmts=" + prepare;
            try (Connection session = DriverManager.getConnection(url)) {
                System.out.println("prepared by the server: " + prepare);
                look(session);
            }
        }
    }

    /** Rows one by one, in batches, and back; more than five executions make pgjdbc name the statement. */
    static void writeAndRead(Connection session, Seen seen, String table) throws SQLException {
        try (PreparedStatement insert = session.prepareStatement("insert into " + table + " values (?, ?)")) {
            for (int n = 0; n < 20; n++) {
                insert.setInt(1, n);
                insert.setString(2, n % 3 == 0 ? null : "it's " + n);
                System.out.println("insert " + insert.executeUpdate());
            }
            for (int n = 100; n < 3000; n++) {
                insert.setInt(1, n);
                insert.setString(2, "x".repeat(n % 50));
                insert.addBatch();
            }
            System.out.println("batch " + insert.executeBatch().length);
        }
        try (PreparedStatement read = session.prepareStatement("select id, note from " + table + " where id = ?")) {
            for (int n = 0; n < 12; n++) {
                read.setInt(1, n);
                seen.rows(read.executeQuery());
            }
        }
    }

    /** A result in portions. */
    static void fetch(Connection session, String query) throws SQLException {
        try (Statement cursor = session.createStatement()) {
            cursor.setFetchSize(100);
            ResultSet rows = cursor.executeQuery(query);
            long hash = 0;
            while (rows.next()) {
                hash = hash * 31 + rows.getInt(1) + rows.getString(2).hashCode();
            }
            System.out.println("fetched " + hash);
        }
    }

    static void look(Connection session) throws SQLException {
        Seen seen = new Seen(session);
        seen.ask("select 1, null, 'ä€😀', 1.50, true, x'deadbeef', date '2026-01-31'");
        seen.ask("select * from nowhere");
        seen.ask("selec 1");
        seen.ask("select 1; select 2, 3; do 0; select 4");
        seen.ask("select 1; selec 2; select 3");
        seen.ask("create table `java t` (id int primary key, note text)");
        writeAndRead(session, seen, "`java t`");
        session.setAutoCommit(false);
        fetch(session, "select seq, sha2(seq, 256) from seq_1_to_20000");
        seen.ask("delete from `java t`");
        session.rollback();
        seen.ask("select count(*), sum(length(note)) from `java t`");
        session.setAutoCommit(true);
        try (Statement slow = session.createStatement()) {
            slow.setQueryTimeout(1);
            seen.rows(slow.executeQuery("select sleep(60)"));
        } catch (SQLException error) {
            System.out.println("timed out " + error.getSQLState());
        }
        session.setCatalog("other");
        seen.ask("select database()");
        session.setCatalog("shop");
        seen.ask("drop table `java t`");
    }

    record Seen(Connection session) {
        void ask(String sql) {
            try (Statement statement = session.createStatement()) {
                boolean rows = statement.execute(sql);
                while (rows || statement.getUpdateCount() >= 0) {
                    if (rows) {
                        rows(statement.getResultSet());
                    } else {
                        System.out.println("changed " + statement.getUpdateCount());
                    }
                    rows = statement.getMoreResults();
                }
            } catch (SQLException error) {
                // The driver tells its connection, which differs, in front of the server's words.
                String message = error.getMessage().replaceFirst("^\\(conn=\\d+\\) ", "");
                System.out.println("failed " + error.getErrorCode() + " " + error.getSQLState() + " " + message);
            }
        }

        void rows(ResultSet rows) throws SQLException {
            ResultSetMetaData columns = rows.getMetaData();
            while (rows.next()) {
                StringBuilder line = new StringBuilder();
                for (int at = 1; at <= columns.getColumnCount(); at++) {
                    line.append(columns.getColumnName(at)).append(':').append(columns.getColumnTypeName(at));
                    line.append('=').append(rows.getString(at)).append(' ');
                }
                System.out.println(line);
            }
        }
    }
}
