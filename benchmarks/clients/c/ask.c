/* Sends requests that were made before, with so many in the air.
 *
 *     ask HOST PORT FRAMES IN_FLIGHT REQUESTS [CONNECTIONS [together]]
 *
 * FRAMES: a file of whole requests, each its size, its header, its body: Produce before version 9 with acks 1, Fetch 11, or
 * OffsetCommit 2, of one partition. They are sent one after the other, over and over, each on the next connection (one,
 * or at least IN_FLIGHT; `together`: with one connection, all that may be sent leave in one call). Only their correlation ids are changed. An answer with an error ends the program. Written to
 * stdout: {"requests_s", "p50_us", "p99_us"}, from the return of send() to the answer.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST_IN_FLIGHT 64
#define KEY_AT 4
#define CORRELATION_AT 8
#define FETCH 1
#define NAME_AT 12
#define FETCH_NAME_AT 22

static void fail(const char *what) { perror(what); exit(1); }

static double now_us(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1e6 + at.tv_nsec / 1e3;
}

static void send_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t done = send(fd, data, size, 0);
        if (done <= 0) fail("send");
        data += done;
        size -= done;
    }
}

static uint32_t int32_at(const char *data) {
    uint32_t value;
    memcpy(&value, data, 4);
    return ntohl(value);
}

/* Of the one partition of the one topic: size, correlation id, …, topics, name, partitions, index, error. */
static int error_in(const char *answer, int name_at) {
    uint16_t length, error;
    memcpy(&length, answer + name_at, 2);
    memcpy(&error, answer + name_at + 2 + ntohs(length) + 8, 2);
    return (int16_t)ntohs(error);
}

static int connected(const struct sockaddr_in *address) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (fd < 0 || connect(fd, (const struct sockaddr *)address, sizeof *address)) fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static int by_size(const void *one, const void *other) {
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

int main(int count, char **words) {
    if (count < 6) { fprintf(stderr, "usage: ask HOST PORT FRAMES IN_FLIGHT REQUESTS [CONNECTIONS]\n"); return 2; }
    int together = count > 7 && !strcmp(words[7], "together");
    int in_flight = atoi(words[4]), requests = atoi(words[5]), connections = count > 6 ? atoi(words[6]) : 1;
    if (in_flight < 1 || in_flight > MOST_IN_FLIGHT || requests < in_flight) { fprintf(stderr, "IN_FLIGHT\n"); return 2; }
    if (connections != 1 && connections < in_flight) { fprintf(stderr, "CONNECTIONS\n"); return 2; }
    FILE *file = fopen(words[3], "rb");
    if (!file) fail(words[3]);
    fseek(file, 0, SEEK_END);
    size_t size = ftell(file);
    rewind(file);
    char *frames = malloc(size), *frame = frames;
    if (fread(frames, 1, size, file) != size) fail("read");
    fclose(file);
    int name_at = frames[KEY_AT + 1] == FETCH ? FETCH_NAME_AT : NAME_AT;

    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[2]))};
    inet_pton(AF_INET, words[1], &address.sin_addr);
    int *fds = malloc(connections * sizeof *fds);
    for (int number = 0; number < connections; number++) fds[number] = connected(&address);

    double *took_us = malloc(requests * sizeof *took_us), sent_us[MOST_IN_FLIGHT];
    static char received[1 << 20], leaving[1 << 20];
    size_t held = 0;
    int sent = 0, answered = 0;
    double begun_us = now_us();
    while (answered < requests) {
        size_t full = 0;
        while (sent < requests && sent - answered < in_flight) {
            uint32_t correlation = htonl(sent);
            memcpy(frame + CORRELATION_AT, &correlation, 4);
            size_t whole = 4 + int32_at(frame);
            if (!together) send_all(fds[sent % connections], frame, whole);
            else {
                if (full + whole > sizeof leaving) { send_all(fds[0], leaving, full); full = 0; }
                memcpy(leaving + full, frame, whole);
                full += whole;
            }
            sent_us[sent++ % MOST_IN_FLIGHT] = now_us();
            frame += whole;
            if (frame == frames + size) frame = frames;
        }
        if (full) send_all(fds[0], leaving, full);
        /* Of several connections, no two requests in the air are on one: what comes belongs to the oldest. */
        ssize_t got = recv(fds[answered % connections], received + held, sizeof received - held, 0);
        if (got <= 0) fail("recv");
        held += got;
        size_t at = 0;
        while (held - at >= 4 && held - at >= 4 + int32_at(received + at)) {
            const char *answer = received + at;
            int error = error_in(answer, name_at);
            if (error) { fprintf(stderr, "error %d\n", error); return 1; }
            if (int32_at(answer + 4) != (uint32_t)answered) { fprintf(stderr, "answers out of order\n"); return 1; }
            took_us[answered] = now_us() - sent_us[answered % MOST_IN_FLIGHT];
            answered++;
            at += 4 + int32_at(answer);
        }
        memmove(received, received + at, held - at);
        held -= at;
    }
    double seconds = (now_us() - begun_us) / 1e6;
    qsort(took_us, requests, sizeof *took_us, by_size);
    printf("{\"requests_s\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f}\n", requests / seconds,
           took_us[requests / 2], took_us[requests * 99 / 100]);
    return 0;
}
