import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Share consumers for the benchmark: members of one group, a thread each, in one JVM.
 *
 *   java -cp … ShareLoad BOOTSTRAP
 *
 * Commands come as lines of fields between tabs, and are answered by a line that begins with their name:
 *
 *   join GROUP TOPIC MEMBERS COUNT HANDLER_MS DEED KEY=VALUE…   answered when all hold the topic
 *   pause                        nobody polls any more
 *   go                           all poll
 *   wait SECONDS                 answered with LAST_NANOS TWICE when COUNT numbers are handled
 *   leave                        all close; answered with how many each handled, and TWICE
 *   start GROUP TOPIC            answered with the ms from a new consumer to its first record
 *
 * A message has its number in its first eight bytes. Deeds, for each record:
 *   accept   by the next poll, as the client does by itself
 *   half     explicitly: odd numbers are accepted, even ones released
 *   bounce   released when it comes first, accepted when it comes again; says "bounced NUMBER NANOS"
 *   hold     kept for ever, and no poll any more; says "held NUMBER"
 *   watch    accepted; says "record NUMBER DELIVERY_COUNT NANOS"
 * Times are of System.nanoTime, which on Linux is the monotonic clock that all processes share.
 */
public class ShareLoad {
    static final Duration POLL = Duration.ofMillis(100);
    static final long JOIN_SECONDS = 60;
    static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    static String bootstrap;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        Crew crew = null;
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            List<String> fields = Arrays.asList(line.split("\t", -1));
            List<String> given = fields.subList(1, fields.size());
            switch (fields.get(0)) {
                case "join" -> {
                    crew = new Crew(given);
                    crew.join();
                    say("join");
                }
                case "pause" -> {
                    crew.pause();
                    say("pause");
                }
                case "go" -> {
                    crew.paused = false;
                    say("go");
                }
                case "wait" -> say("wait", crew.await(Double.parseDouble(given.get(0))), crew.twice);
                case "leave" -> say("leave", crew.leave(), crew.twice);
                case "start" -> say("start", start(given.get(0), given.get(1)));
                default -> throw new IllegalArgumentException("no command " + line);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    static synchronized void say(Object... fields) {
        OUT.println(Arrays.stream(fields).map(String::valueOf).collect(Collectors.joining("\t")));
        OUT.flush();
    }

    static KafkaShareConsumer<byte[], byte[]> consumer(String group, String topic, Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(settings);
        all.put("bootstrap.servers", bootstrap);
        all.put("group.id", group);
        var made = new KafkaShareConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        made.subscribe(List.of(topic));
        return made;
    }

    static double start(String group, String topic) {
        long began = System.nanoTime();
        try (var consumer = consumer(group, topic, Map.of())) {
            while (consumer.poll(POLL).isEmpty())
                if (System.nanoTime() - began > JOIN_SECONDS * 1_000_000_000L)
                    throw new IllegalStateException("nothing came");
            return (System.nanoTime() - began) / 1e6;
        }
    }

    static class Crew {
        final String group, topic, deed;
        final int count;
        final long handlerNanos;
        final Map<String, Object> settings = new HashMap<>();
        final List<Member> members = new ArrayList<>();
        final AtomicIntegerArray seen;
        final AtomicInteger handled = new AtomicInteger(), twice = new AtomicInteger();
        volatile boolean paused, ended;
        volatile long lastAt;
        final long[] released;

        Crew(List<String> given) {
            group = given.get(0);
            topic = given.get(1);
            count = Integer.parseInt(given.get(3));
            handlerNanos = (long) (Double.parseDouble(given.get(4)) * 1e6);
            deed = given.get(5);
            if (!deed.equals("accept") && !deed.equals("watch")) settings.put("share.acknowledgement.mode", "explicit");
            for (String pair : given.subList(6, given.size()))
                settings.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
            seen = new AtomicIntegerArray(count);
            released = new long[count];
            for (int i = 0; i < Integer.parseInt(given.get(2)); i++) members.add(new Member(this));
        }

        void join() throws Exception {
            members.forEach(Thread::start);
            long end = System.nanoTime() + JOIN_SECONDS * 1_000_000_000L;
            var wanted = Set.of(new TopicPartition(topic, 0));
            try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
                while (true) {
                    try {
                        var found = admin.describeShareGroups(List.of(group)).describedGroups().get(group).get();
                        if (found.members().stream().filter(
                            each -> each.assignment().topicPartitions().equals(wanted)).count() >= members.size())
                            break;
                    } catch (java.util.concurrent.ExecutionException notYet) {
                        if (!(notYet.getCause() instanceof KafkaException)) throw notYet;
                    }
                    if (System.nanoTime() > end) throw new IllegalStateException("not all were given the topic");
                    Thread.sleep(20);
                }
            }
            Thread.sleep(500); // what the coordinator has told, the members have heard
        }

        void pause() throws Exception {
            paused = true;
            for (Member member : members) while (!member.parked) Thread.sleep(1);
        }

        long await(double seconds) throws Exception {
            long end = System.nanoTime() + (long) (seconds * 1e9);
            while (handled.get() < count) {
                if (System.nanoTime() > end)
                    throw new IllegalStateException("only " + handled + " of " + count + " were handled");
                Thread.sleep(1);
            }
            return lastAt;
        }

        String leave() throws Exception {
            ended = true;
            for (Member member : members) member.join();
            return members.stream().map(each -> "" + each.mine).collect(Collectors.joining(","));
        }
    }

    static class Member extends Thread {
        final Crew crew;
        volatile boolean parked;
        int mine;

        Member(Crew crew) {
            this.crew = crew;
            setDaemon(true);
        }

        @Override public void run() {
            try (var consumer = consumer(crew.group, crew.topic, crew.settings)) {
                while (!crew.ended) {
                    parked = crew.paused;
                    if (parked) LockSupport.parkNanos(200_000);
                    else handle(consumer, consumer.poll(POLL));
                }
                consumer.commitSync();
            } catch (Throwable error) {
                error.printStackTrace();
                Runtime.getRuntime().halt(3);
            }
        }

        void handle(KafkaShareConsumer<byte[], byte[]> consumer, ConsumerRecords<byte[], byte[]> records)
                throws Exception {
            for (ConsumerRecord<byte[], byte[]> record : records) {
                boolean numbered = record.value() != null && record.value().length >= 8;
                long number = numbered ? ByteBuffer.wrap(record.value()).getLong() : -1;
                if (number < 0 || number >= crew.count) { // written to make the topic, or by another run
                    if (crew.settings.containsKey("share.acknowledgement.mode")) consumer.acknowledge(record);
                    continue;
                }
                if (crew.handlerNanos > 0) Thread.sleep(crew.handlerNanos / 1_000_000);
                act(consumer, record, (int) number);
                mine++;
            }
        }

        void act(KafkaShareConsumer<byte[], byte[]> consumer, ConsumerRecord<byte[], byte[]> record, int number)
                throws Exception {
            long now = System.nanoTime();
            switch (crew.deed) {
                case "accept" -> mark(number, now);
                case "watch" -> {
                    say("record", number, record.deliveryCount().orElseThrow(), now);
                    mark(number, now);
                }
                case "half" -> {
                    consumer.acknowledge(record, number % 2 == 0 ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                    mark(number, now);
                }
                case "hold" -> {
                    say("held", number);
                    Thread.sleep(Long.MAX_VALUE);
                }
                case "bounce" -> {
                    boolean again = record.deliveryCount().orElseThrow() > 1;
                    if (!again) crew.released[number] = now;
                    consumer.acknowledge(record, again ? AcknowledgeType.ACCEPT : AcknowledgeType.RELEASE);
                    for (var result : consumer.commitSync().values())
                        if (result.isPresent()) throw result.get();
                    if (again) {
                        say("bounced", number, now - crew.released[number]);
                        mark(number, now);
                    }
                }
                default -> throw new IllegalArgumentException(crew.deed);
            }
        }

        void mark(int number, long now) {
            if (crew.seen.incrementAndGet(number) == 1) {
                crew.lastAt = now;
                crew.handled.incrementAndGet();
            } else {
                crew.twice.incrementAndGet();
            }
        }
    }
}
