import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;

/**
 * How Java writes names of certificates. Each line of the input is a name (DER, in hex); each line of the output is
 * X500Principal.getName() of it as UTF-8 in hex, or "!" where Java takes it for no name.
 */
public class SubjectNames {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String name;
            try {
                name = new X500Principal(HexFormat.of().parseHex(line)).getName();
            } catch (IllegalArgumentException notOne) {
                out.println("!");
                continue;
            }
            out.println(HexFormat.of().formatHex(name.getBytes(StandardCharsets.UTF_8)));
        }
        out.flush();
    }
}
