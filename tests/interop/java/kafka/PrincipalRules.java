import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * What Kafka makes of names by ssl.principal.mapping.rules. Each line of the input has rules and a name, divided by a
 * tab; each line of the output is the user's name, "!rules" where Kafka refuses the rules, or "!name" where it refuses
 * the name.
 */
public class PrincipalRules {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] asked = line.split("\t", -1);
            SslPrincipalMapper rules;
            try {
                rules = SslPrincipalMapper.fromRules(asked[0]);
            } catch (RuntimeException refused) {
                out.println("!rules");
                continue;
            }
            try {
                out.println(rules.getName(asked[1]));
            } catch (Exception refused) {
                out.println("!name");
            }
        }
        out.flush();
    }
}
