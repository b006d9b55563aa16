"""Attacks on a secured broker in a process of its own, with a witness that must be served meanwhile (`secured`).

Where each attack of the hostile list is tried:

    silent connections, thousands             test_crowds; few of them: security/test_tls_listener
    a hello byte by byte                      security/test_tls_listener
    a handshake, then silence                 test_crowds
    HTTP, SSH, TLS on the wrong port          test_crowds, security/test_tls_listener
    100 MiB before the login                  test_crowds, security/test_login
    large first frames and tokens             test_rocketmq, security/test_login, security/test_newcomers
    ApiVersions twice, no handshake,          security/test_login
      another mechanism, a pipelined Produce
    SCRAM: nonces, names, binding, authzid    auth/test_scram; every byte spoilt: test_fuzz_secured
    guessed passwords, unknown users          test_crowds, auth/test_scram, auth/test_plain
    another user or mechanism again,          security/test_login
      the end of a session while a fetch waits
    access tokens                             test_tokens, auth/test_oauth, security/test_bearer_*
    certificates of clients                   test_certificates, security/test_tls_listener, auth/test_x500
    the broker's certificate swapped          test_certificates, security/test_tls
    100,000 rules, DENY under load, kill -9   test_rules
    a right that goes while a request waits   security/test_revoked, adapters/rocketmq/test_rocketmq_access
    RocketMQ: unsigned, re-cut, replayed,     test_rocketmq, adapters/rocketmq/test_signatures
      %RETRY% of another group
    names that write into the log             test_crowds, server/test_log_lines
    views, retry, half messages, 18502        security/test_own_ways; whether something exists: security/test_secrecy
    random requests before and after a login  test_fuzz_secured; without a login: fuzz
"""
