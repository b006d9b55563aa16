import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * What Kafka's StandardAuthorizer answers to questions about generated sets of access rules
 * (tests/services/authorization/questions.py). Reads a file of lines, words parted by tabs: first what is asked
 * (principals, hosts, operations, names), then for each set `set`, allow everyone, super user, two resource types; its
 * rules, in numbers; `ask`. Prints the answers of a set as a line of hexadecimal digits.
 */
public class Authorizing {
    record Asker(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "L"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.SASL_PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return "c"; }
        public int correlationId() { return 0; }
    }

    static final Map<String, List<String>> asked = new HashMap<>();
    static StandardAuthorizer authorizer;
    static List<ResourceType> types;

    public static void main(String[] words) throws Exception {
        for (String line : Files.readAllLines(Path.of(words[0]))) {
            String[] said = line.split("\t", -1);
            switch (said[0]) {
                case "set" -> begin(said);
                case "rule" -> authorizer.addAcl(Uuid.randomUuid(), new StandardAcl(
                    ResourceType.fromCode(Byte.parseByte(said[1])), said[2], PatternType.fromCode(Byte.parseByte(said[3])),
                    said[4], said[5], AclOperation.fromCode(Byte.parseByte(said[6])),
                    AclPermissionType.fromCode(Byte.parseByte(said[7]))));
                case "ask" -> System.out.println(ask());
                default -> asked.put(said[0], List.of(said).subList(1, said.length));
            }
        }
    }

    static void begin(String[] said) {
        authorizer = new StandardAuthorizer();
        var configs = new HashMap<String, Object>();
        configs.put(StandardAuthorizer.ALLOW_EVERYONE_IF_NO_ACL_IS_FOUND_CONFIG, said[1]);
        configs.put(StandardAuthorizer.SUPER_USERS_CONFIG, said[2]);
        authorizer.configure(configs);
        authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        authorizer.completeInitialLoad();
        types = List.of(type(said[3]), type(said[4]));
    }

    static ResourceType type(String number) {
        return ResourceType.fromCode(Byte.parseByte(number));
    }

    static String ask() throws Exception {
        var answers = new ArrayList<Boolean>();
        for (String principal : asked.get("principals")) {
            for (String host : asked.get("hosts")) {
                var asker = new Asker(SecurityUtils.parseKafkaPrincipal(principal), InetAddress.getByName(host));
                for (ResourceType type : types) {
                    for (String number : asked.get("operations")) {
                        var operation = AclOperation.fromCode(Byte.parseByte(number));
                        for (String name : asked.get("names")) {
                            var resource = new ResourcePattern(type, name, PatternType.LITERAL);
                            answers.add(allowed(authorizer.authorize(
                                asker, List.of(new Action(operation, resource, 1, true, true))).get(0)));
                        }
                        answers.add(allowed(authorizer.authorizeByResourceType(asker, operation, type)));
                    }
                }
            }
        }
        var digits = new StringBuilder();
        for (int at = 0; at < answers.size(); at += 4) {
            int digit = 0;
            for (int bit = 0; bit < 4; bit++) {
                digit = digit * 2 + (at + bit < answers.size() && answers.get(at + bit) ? 1 : 0);
            }
            digits.append(Character.forDigit(digit, 16));
        }
        return digits.toString();
    }

    static boolean allowed(AuthorizationResult result) {
        return result == AuthorizationResult.ALLOWED;
    }
}
