// Ten messages to a topic and back through a group, by franz-go or Sarama, at a broker that asks who somebody is.
//
//	secured franz|sarama -servers HOST:PORT -topic TOPIC -group GROUP [-ca FILE] [-cert FILE -key FILE]
//	        [-mechanism PLAIN|SCRAM-SHA-256|SCRAM-SHA-512 -user NAME -password PASSWORD]
//	        [-mechanism OAUTHBEARER -token TOKEN]
//
// Prints "sent N" and "received N"; or "refused authentication", "refused topic" or "refused group" as soon as the
// client gives its own error of this kind, and ends with 1. Other errors go to stderr alone.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"os"
	"time"
)

const messages = 10

// What to log in with, and where.
type settings struct {
	servers, topic, group            string
	mechanism, user, password, token string
	tls                              *tls.Config // nil: without
}

// What a library can do with it. kind names what an error of the library's own says, "" for others.
type client interface {
	produce(context.Context, []string) error
	consume(context.Context, int) (int, error)
	kind(error) string
}

func main() {
	var s settings
	var ca, cert, key string
	flags := flag.NewFlagSet("secured", flag.ExitOnError)
	for name, value := range map[string]*string{
		"servers": &s.servers, "topic": &s.topic, "group": &s.group, "mechanism": &s.mechanism, "user": &s.user,
		"password": &s.password, "token": &s.token, "ca": &ca, "cert": &cert, "key": &key,
	} {
		flags.StringVar(value, name, "", "")
	}
	must(flags.Parse(os.Args[2:]))
	if ca != "" {
		s.tls = encryption(ca, cert, key)
	}
	makers := map[string]func(settings) client{"franz": franz, "sarama": saramas}
	used := makers[os.Args[1]](s)

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	values := make([]string, messages)
	for i := range values {
		values[i] = fmt.Sprint("value ", i)
	}
	report(used, used.produce(ctx, values))
	fmt.Println("sent", messages)
	received, err := used.consume(ctx, messages)
	report(used, err)
	fmt.Println("received", received)
}

func encryption(ca, cert, key string) *tls.Config {
	authority, err := os.ReadFile(ca)
	must(err)
	made := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	if !made.RootCAs.AppendCertsFromPEM(authority) {
		must(fmt.Errorf("%s has no certificate", ca))
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		must(err)
		made.Certificates = []tls.Certificate{pair}
	}
	return made
}

func report(used client, err error) {
	if err != nil {
		if kind := used.kind(err); kind != "" {
			fmt.Println("refused", kind)
		}
		must(err)
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
