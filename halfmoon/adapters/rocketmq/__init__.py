"""The RocketMQ remoting protocol in front of the core: broker requests on one port, the name service on another."""
