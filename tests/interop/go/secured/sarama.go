package main

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

type saramaClient struct {
	settings
	config *sarama.Config
}

func saramas(s settings) client {
	config := sarama.NewConfig()
	config.Version = sarama.V4_0_0_0
	config.Producer.Return.Successes = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Metadata.Retry.Backoff = 50 * time.Millisecond // it tries again where a right is missing
	config.Net.TLS.Enable, config.Net.TLS.Config = s.tls != nil, s.tls
	if s.mechanism != "" {
		login := &config.Net.SASL
		login.Enable, login.Mechanism = true, sarama.SASLMechanism(s.mechanism)
		login.User, login.Password = s.user, s.password
		login.TokenProvider = bearer(s.token)
		hashes := map[string]scram.HashGeneratorFcn{"SCRAM-SHA-256": scram.SHA256, "SCRAM-SHA-512": scram.SHA512}
		login.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{hash: hashes[s.mechanism]} }
	}
	return saramaClient{s, config}
}

func (s saramaClient) produce(_ context.Context, values []string) error {
	producer, err := sarama.NewSyncProducer([]string{s.servers}, s.config)
	if err != nil {
		return err
	}
	defer producer.Close()
	for _, value := range values {
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: s.topic, Value: sarama.StringEncoder(value)}); err != nil {
			return err
		}
	}
	return nil
}

func (s saramaClient) consume(ctx context.Context, wanted int) (int, error) {
	group, err := sarama.NewConsumerGroup([]string{s.servers}, s.group, s.config)
	if err != nil {
		return 0, err
	}
	defer group.Close()
	counting, enough := context.WithCancel(ctx)
	defer enough()
	reader := &counter{wanted: wanted, enough: enough}
	err = group.Consume(counting, []string{s.topic}, reader)
	return reader.received, err
}

func (saramaClient) kind(err error) string {
	switch {
	case errors.Is(err, sarama.ErrSASLAuthenticationFailed):
		return "authentication"
	case errors.Is(err, sarama.ErrTopicAuthorizationFailed):
		return "topic"
	case errors.Is(err, sarama.ErrGroupAuthorizationFailed):
		return "group"
	}
	return ""
}

// Of a topic with one partition.
type counter struct {
	wanted, received int
	enough           context.CancelFunc
}

func (*counter) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*counter) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *counter) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
		if c.received++; c.received == c.wanted {
			session.Commit()
			c.enough()
		}
	}
	return nil
}

type bearer string

func (token bearer) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(token)}, nil
}

// SCRAM, which Sarama leaves to another library.
type conversation struct {
	*scram.ClientConversation
	hash scram.HashGeneratorFcn
}

func (c *conversation) Begin(user, password, authorization string) error {
	made, err := c.hash.NewClient(user, password, authorization)
	if err == nil {
		c.ClientConversation = made.NewConversation()
	}
	return err
}
