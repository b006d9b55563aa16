"""RocketMQ's remoting protocol as bytes: frames, stored messages, properties, codes. For both ends of a connection:
halfmoon.adapters.rocketmq answers, halfmoon.client asks. It knows nothing of either."""
