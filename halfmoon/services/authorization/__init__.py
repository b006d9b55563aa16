"""Who may do what: the access rules decided as Kafka's StandardAuthorizer does, and plugins before them."""
