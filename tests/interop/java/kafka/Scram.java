import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Base64;
import java.util.Map;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.NameCallback;
import javax.security.auth.callback.PasswordCallback;
import javax.security.sasl.SaslClient;
import javax.security.sasl.SaslServer;
import org.apache.kafka.common.security.scram.ScramCredential;
import org.apache.kafka.common.security.scram.ScramCredentialCallback;
import org.apache.kafka.common.security.scram.ScramExtensionsCallback;
import org.apache.kafka.common.security.scram.internals.ScramFormatter;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;
import org.apache.kafka.common.security.scram.internals.ScramSaslClient;
import org.apache.kafka.common.security.scram.internals.ScramSaslServer;

/**
 * Kafka's halves of SCRAM, line by line in base64. `client MECHANISM NAME PASSWORD TOKEN`: the client's messages, after
 * each of the server's on the input; TOKEN is true or false. `server MECHANISM NAME PASSWORD -`: the server's messages,
 * after each of the client's. The last line is "done", or "failed" and why.
 */
public class Scram {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        ScramMechanism mechanism = ScramMechanism.forMechanismName(arguments[1]);
        String name = arguments[2];
        String password = arguments[3];
        try {
            if (arguments[0].equals("client")) {
                client(in, mechanism, name, password, arguments[4].equals("true"));
            } else {
                server(in, mechanism, name, password);
            }
            System.out.println("done");
        } catch (Exception failed) {
            System.out.println("failed " + failed.getMessage());
        }
    }

    private static void say(byte[] message) {
        System.out.println(Base64.getEncoder().encodeToString(message));
        System.out.flush();
    }

    private static byte[] hear(BufferedReader in) throws Exception {
        return Base64.getDecoder().decode(in.readLine());
    }

    private static void client(BufferedReader in, ScramMechanism mechanism, String name, String password, boolean token)
            throws Exception {
        SaslClient client = new ScramSaslClient(mechanism, callbacks -> {
            for (Callback each : callbacks) {
                if (each instanceof NameCallback) {
                    ((NameCallback) each).setName(name);
                } else if (each instanceof PasswordCallback) {
                    ((PasswordCallback) each).setPassword(password.toCharArray());
                } else if (each instanceof ScramExtensionsCallback && token) {
                    ((ScramExtensionsCallback) each).extensions(Map.of("tokenauth", "true"));
                }
            }
        });
        say(client.evaluateChallenge(new byte[0]));
        say(client.evaluateChallenge(hear(in)));
        client.evaluateChallenge(hear(in));
        if (!client.isComplete()) {
            throw new IllegalStateException("not complete");
        }
    }

    private static void server(BufferedReader in, ScramMechanism mechanism, String name, String password)
            throws Exception {
        ScramCredential credential = new ScramFormatter(mechanism).generateCredential(password, 8192);
        SaslServer server = new ScramSaslServer(mechanism, Map.of(), callbacks -> {
            String asked = null;
            for (Callback each : callbacks) {
                if (each instanceof NameCallback) {
                    asked = ((NameCallback) each).getDefaultName();
                } else if (each instanceof ScramCredentialCallback && name.equals(asked)) {
                    ((ScramCredentialCallback) each).scramCredential(credential);
                }
            }
        });
        say(server.evaluateResponse(hear(in)));
        say(server.evaluateResponse(hear(in)));
        if (!server.getAuthorizationID().equals(name)) {
            throw new IllegalStateException("authenticated as " + server.getAuthorizationID());
        }
    }
}
