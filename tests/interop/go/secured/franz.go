package main

import (
	"context"
	"errors"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type franzClient struct{ settings }

func franz(s settings) client { return franzClient{s} }

func (f franzClient) open(more ...kgo.Opt) *kgo.Client {
	options := append([]kgo.Opt{kgo.SeedBrokers(f.servers), kgo.AllowAutoTopicCreation()}, more...)
	if f.tls != nil {
		options = append(options, kgo.DialTLSConfig(f.tls))
	}
	mechanisms := map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: f.user, Pass: f.password}.AsMechanism(),
		"SCRAM-SHA-256": scram.Auth{User: f.user, Pass: f.password}.AsSha256Mechanism(),
		"SCRAM-SHA-512": scram.Auth{User: f.user, Pass: f.password}.AsSha512Mechanism(),
		"OAUTHBEARER":   oauth.Auth{Token: f.token}.AsMechanism(),
	}
	if f.mechanism != "" {
		options = append(options, kgo.SASL(mechanisms[f.mechanism]))
	}
	opened, err := kgo.NewClient(options...)
	must(err)
	return opened
}

func (f franzClient) produce(ctx context.Context, values []string) error {
	producer := f.open()
	defer producer.Close()
	if err := producer.Ping(ctx); err != nil { // or it would try again and again, and say so in its log only
		return err
	}
	records := make([]*kgo.Record, len(values))
	for i, value := range values {
		records[i] = &kgo.Record{Topic: f.topic, Value: []byte(value)}
	}
	return producer.ProduceSync(ctx, records...).FirstErr()
}

func (f franzClient) consume(ctx context.Context, wanted int) (int, error) {
	consumer := f.open(
		kgo.ConsumerGroup(f.group), kgo.ConsumeTopics(f.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	defer consumer.Close()
	received := 0
	for received < wanted {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return received, err
		}
		received += fetches.NumRecords()
	}
	return received, consumer.CommitUncommittedOffsets(ctx)
}

func (franzClient) kind(err error) string {
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return "authentication"
	case strings.Contains(err.Error(), "unexpected data in oauth response"): // the reason why a token is refused (RFC 7628)
		return "authentication"
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return "topic"
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return "group"
	}
	return ""
}
