import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.SortedMap;
import java.util.TreeMap;
import org.apache.rocketmq.acl.common.AclUtils;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** RocketMQ's signatures of the requests in tests/auth/test_access_key.py, and the number of the version 4.9.3. */
public class Signatures {
    private static void sign(String secret, byte[] body, String... namesAndValues) {
        RemotingCommand request = RemotingCommand.createRequestCommand(10, null);
        request.setBody(body);
        SortedMap<String, String> fields = new TreeMap<>();
        for (int at = 0; at < namesAndValues.length; at += 2) {
            fields.put(namesAndValues[at], namesAndValues[at + 1]);
        }
        System.out.println(AclUtils.calSignature(AclUtils.combineRequestContent(request, fields), secret));
    }

    public static void main(String[] arguments) {
        byte[] body = "payload".getBytes(StandardCharsets.UTF_8);
        sign("12345678", body, "AccessKey", "alice", "topic", "orders", "b", "2", "a", "1");
        sign("12345678", null, "AccessKey", "alice", "topic", "orders", "b", "2", "a", "1");
        sign("12345678", body, "AccessKey", "alice", "topic", "orders", "Signature", "old");
        sign("geheim-\u00e4", body, "AccessKey", "m\u00fcller", "topic", "\u65e5\u672c\ud83d\ude00");
        sign("12345678", body, "AccessKey", "alice", "\uff41", "1", "\ud83d\ude00", "2");
        sign("12345678", new byte[0], "AccessKey", "alice", "Z", "1", "_", "2", "z", "3", "", "4");
        System.out.println(MQVersion.Version.V4_9_3.ordinal());
    }
}
