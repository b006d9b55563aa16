// Which release of Kafka franz-go's kversion takes a broker for.
//
//	version HOST:PORT
//
// Prints the guess, then a line for each release that the broker is compared with, "RELEASE: KEY …": the keys of that
// release that the broker lacks or has in lower versions only, without those that kversion leaves out.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

var betweenBrokers = map[int16]bool{4: true, 5: true, 6: true, 7: true, 27: true, 56: true, 57: true, 58: true, 67: true, 71: true, 72: true}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	asked := kmsg.NewPtrApiVersionsRequest()
	asked.ClientSoftwareName, asked.ClientSoftwareVersion = "version", "1"
	answer, err := asked.RequestWith(ctx, client)
	if err != nil {
		panic(err)
	}
	broker := kversion.FromApiVersionsResponse(answer)
	fmt.Println(broker.VersionGuess())
	releases := []struct {
		name     string
		versions *kversion.Versions
	}{
		{"3.9", kversion.V3_9_0()}, {"4.0", kversion.V4_0_0()}, {"4.1", kversion.V4_1_0()}, {"4.2", kversion.V4_2_0()}, {"4.3", kversion.V4_3_0()},
	}
	for _, release := range releases {
		fmt.Printf("%s:", release.name)
		release.versions.EachMaxKeyVersion(func(key, most int16) {
			if here, known := broker.LookupMaxKeyVersion(key); !betweenBrokers[key] && (!known || here < most) {
				fmt.Printf(" %d", key)
			}
		})
		fmt.Println()
	}
}
