package members;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.regex.Pattern;

import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * The process in which members live that are Java clients. The lines that it speaks are told in
 * compat_tests/members/__init__.py; it does as compat_tests/members/host.py does.
 */
public class Host {
    static final Duration POLL = Duration.ofMillis(100);
    static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "cooperative", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
    static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    public static void main(String[] arguments) throws Exception {
        Map<String, Member> members = new HashMap<>();
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            List<String> fields = Arrays.asList(line.split("\t", -1));
            Member member = members.computeIfAbsent(fields.get(0), Member::started);
            member.commands.put(fields.subList(1, fields.size()));
        }
        Runtime.getRuntime().halt(0);
    }

    static synchronized void write(List<List<String>> lines) {
        for (List<String> line : lines)
            OUT.print(String.join("\t", line.stream().map(Host::oneLine).toList()) + "\n");
        OUT.flush();
    }

    static String oneLine(String field) {
        return field == null ? "" : field.strip().replaceAll("\\s+", " ");
    }

    static class Member implements ConsumerRebalanceListener {
        final String name;
        final LinkedBlockingQueue<List<String>> commands = new LinkedBlockingQueue<>();
        KafkaConsumer<String, String> client;
        KafkaShareConsumer<String, String> share;
        boolean running = false;
        boolean commitsEach = false;
        double pauseMillis = 0;
        String diesAt = null;

        Member(String name) {
            this.name = name;
        }

        static Member started(String name) {
            Member member = new Member(name);
            Thread thread = new Thread(member::work, name);
            thread.setDaemon(true);
            thread.start();
            return member;
        }

        void work() {
            String command = "";
            while (!command.equals("close")) {
                if (running && commands.isEmpty()) {
                    step();
                    continue;
                }
                List<String> fields = null;
                try {
                    fields = commands.take();
                    command = fields.get(1);
                    List<String> result = act(command, fields.subList(2, fields.size()));
                    List<String> line = new ArrayList<>(List.of(name, "done", fields.get(0)));
                    line.addAll(result);
                    write(List.of(line));
                } catch (Throwable error) {
                    write(List.of(List.of(name, "failed", fields.get(0), kind(error), "" + error.getMessage())));
                }
            }
        }

        static String kind(Throwable error) {
            return error.getClass().getSimpleName();
        }

        void step() {
            ConsumerRecords<String, String> records;
            try {
                records = share == null ? client.poll(POLL) : share.poll(POLL);
                report(records);
                if (pauseMillis > 0) Thread.sleep((long) (pauseMillis * records.count()));
            } catch (Throwable error) {
                running = false;
                write(List.of(List.of(name, "broken", kind(error), "" + error.getMessage())));
                return;
            }
            if (records.isEmpty() || !commitsEach) return;
            try {
                commit();
                write(List.of(List.of(name, "committed")));
            } catch (Throwable error) {
                write(List.of(List.of(name, "uncommitted", kind(error), "" + error.getMessage())));
            }
        }

        /** A member of a share group accepts with it what the last poll gave. */
        void commit() throws Exception {
            if (share == null) {
                client.commitSync();
                return;
            }
            for (var error : share.commitSync().values())
                if (error.isPresent()) throw error.get();
        }

        void report(ConsumerRecords<String, String> records) {
            List<List<String>> lines = new ArrayList<>(List.of(List.of(name, "polled")));
            boolean dies = false;
            for (ConsumerRecord<String, String> each : records) {
                Header attempt = each.headers().lastHeader("qmq-attempt");
                lines.add(List.of(name, "record", each.topic(), "" + each.offset(), "" + each.timestamp(),
                    each.value() == null ? "" : each.value(), attempt == null ? "1" : new String(attempt.value()),
                    "" + System.currentTimeMillis()));
                dies = diesAt != null && diesAt.equals(each.value());
                if (dies) break;
            }
            if (!records.isEmpty()) write(lines);
            if (dies) Runtime.getRuntime().halt(137);
        }

        void make(List<String> arguments) {
            Properties settings = new Properties();
            for (String pair : arguments.subList(1, arguments.size()))
                settings.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
            String topics = (String) settings.remove("topics");
            String pattern = (String) settings.remove("pattern");
            diesAt = (String) settings.remove("dies.at");
            String strategy = arguments.get(0).substring(arguments.get(0).indexOf('-') + 1);
            if (strategy.equals("share")) {
                List.of("session.timeout.ms", "heartbeat.interval.ms", "auto.offset.reset", "enable.auto.commit")
                    .forEach(settings::remove);
                share = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
                share.subscribe(Arrays.asList(topics.split(",")));
                return;
            }
            boolean serverSide = strategy.equals("consumer");
            if (serverSide) {
                settings.remove("session.timeout.ms");
                settings.remove("heartbeat.interval.ms");
                settings.put("group.protocol", "consumer");
            } else {
                settings.put("partition.assignment.strategy", ASSIGNORS.get(strategy));
            }
            client = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
            if (pattern == null) client.subscribe(Arrays.asList(topics.split(",")), this);
            else if (serverSide) client.subscribe(new SubscriptionPattern(pattern), this);
            else client.subscribe(Pattern.compile(pattern), this);
        }

        void tell(String kind, Collection<TopicPartition> partitions) {
            List<String> line = new ArrayList<>(List.of(name, kind));
            partitions.forEach(each -> line.add(each.topic()));
            write(List.of(line));
        }

        @Override public void onPartitionsAssigned(Collection<TopicPartition> given) { tell("assigned", given); }
        @Override public void onPartitionsRevoked(Collection<TopicPartition> taken) { tell("revoked", taken); }
        @Override public void onPartitionsLost(Collection<TopicPartition> lost) { tell("lost", lost); }

        List<String> act(String command, List<String> given) throws Exception {
            TopicPartition of = given.isEmpty() ? null : new TopicPartition(given.get(0), 0);
            switch (command) {
                case "make" -> make(given);
                case "take" -> take(Integer.parseInt(given.get(0)), Double.parseDouble(given.get(1)));
                case "run" -> {
                    running = true;
                    commitsEach = given.get(0).equals("each");
                    pauseMillis = Double.parseDouble(given.get(1));
                }
                case "stop" -> running = false;
                case "commit" -> {
                    if (of == null) commit();
                    else client.commitSync(Map.of(of, new OffsetAndMetadata(Long.parseLong(given.get(1)), given.get(2))));
                }
                case "committed" -> {
                    var found = client.committed(Set.of(of)).get(of);
                    return found == null ? List.of() : List.of("" + found.offset());
                }
                case "position" -> { return List.of("" + client.position(of)); }
                case "seek" -> {
                    if (given.get(1).equals("beginning")) client.seekToBeginning(List.of(of));
                    else if (given.get(1).equals("end")) client.seekToEnd(List.of(of));
                    else client.seek(of, Long.parseLong(given.get(1)));
                }
                case "ends" -> {
                    long first = client.beginningOffsets(List.of(of)).get(of);
                    return List.of("" + first, "" + client.endOffsets(List.of(of)).get(of));
                }
                case "at" -> {
                    var found = client.offsetsForTimes(Map.of(of, Long.parseLong(given.get(1)))).get(of);
                    return found == null ? List.of() : List.of("" + found.offset());
                }
                case "pause" -> client.pause(List.of(of));
                case "resume" -> client.resume(List.of(of));
                case "assignment" -> { return client.assignment().stream().map(TopicPartition::topic).sorted().toList(); }
                case "subscribe" -> client.subscribe(given, this);
                case "close" -> {
                    running = false;
                    if (share == null) client.close();
                    else share.close();
                }
                default -> throw new IllegalArgumentException("no command " + command);
            }
            return List.of();
        }

        void take(int count, double seconds) throws Exception {
            int got = 0;
            long end = System.nanoTime() + (long) (seconds * 1e9);
            while (got < count) {
                ConsumerRecords<String, String> records = share == null ? client.poll(POLL) : share.poll(POLL);
                report(records);
                got += records.count();
                if (got < count && System.nanoTime() > end)
                    throw new java.util.concurrent.TimeoutException("only " + got + " of " + count + " came");
            }
        }
    }
}
