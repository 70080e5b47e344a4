// SPDX-License-Identifier: Apache-2.0
// Sends the frames of a capture out of one end of a veth pair, each at once, and counts those that come through the
// other: what an XDP program there lets pass. Static, since it runs where nothing else is.
//
//   frames SENDER RECEIVER CAPTURE     prints {"sent": 400, "arrived": 312}
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST_TRIES 5000
#define QUIET_MS 1000

static void fail(const char *what)
{
    fprintf(stderr, "error: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int open_on(const char *interface, uint16_t protocol)
{
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(protocol)};
    int opened = socket(AF_PACKET, SOCK_RAW, 0);
    address.sll_ifindex = (int)if_nametoindex(interface);
    if (opened < 0 || !address.sll_ifindex || bind(opened, (struct sockaddr *)&address, sizeof address))
        fail(interface);
    return opened;
}

// Packets merged on their way to the socket would be counted as one.
static void take_packets_apart(int socket, const char *interface)
{
    struct ethtool_value off = {.cmd = ETHTOOL_SGRO};
    struct ifreq request = {.ifr_data = (char *)&off};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
    if (ioctl(socket, SIOCETHTOOL, &request))
        fail(interface);
}

static int drain(int socket)
{
    static char frame[65536];
    int arrived = 0;
    while (recv(socket, frame, sizeof frame, MSG_DONTWAIT) >= 0)
        arrived++;
    if (errno != EAGAIN)
        fail("receiving");
    return arrived;
}

static uint32_t number(FILE *capture)
{
    uint32_t word = 0;
    if (fread(&word, sizeof word, 1, capture) != 1)
        fail("the capture breaks off");
    return ntohl(word);
}

int main(int count, char **arguments)
{
    int one = 1, megabytes = 64 << 20, sent = 0, arrived = 0, first = 0;
    static char frame[65536];
    cpu_set_t cpu;
    if (count != 4) {
        fprintf(stderr, "usage: frames SENDER RECEIVER CAPTURE\n");
        return 2;
    }
    // A veth pair handles a packet on the CPU that sent it, and the program keeps flows by CPU.
    CPU_ZERO(&cpu);
    CPU_SET(0, &cpu);
    FILE *capture = fopen(arguments[3], "rb");
    if (!capture || sched_setaffinity(0, sizeof cpu, &cpu))
        fail(arguments[3]);
    if (number(capture) != 0xa1b23c4d || fseek(capture, 24, SEEK_SET))
        fail("not a big-endian pcap with nanoseconds");
    int sender = open_on(arguments[1], 0), receiver = open_on(arguments[2], ETH_P_ALL);
    if (setsockopt(receiver, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) ||
        setsockopt(receiver, SOL_SOCKET, SO_RCVBUFFORCE, &megabytes, sizeof megabytes))
        fail(arguments[2]);
    take_packets_apart(receiver, arguments[2]);
    while ((first = fgetc(capture)) != EOF) {
        ungetc(first, capture);
        number(capture), number(capture);
        uint32_t length = number(capture);
        number(capture);
        if (length > sizeof frame || fread(frame, 1, length, capture) != length)
            fail("the capture breaks off");
        // A full queue of the other end: a machine that is emulated may take a while to empty it.
        int tries = 0;
        while (send(sender, frame, length, 0) != (ssize_t)length) {
            if (errno != ENOBUFS || ++tries > MOST_TRIES)
                fail("sending");
            arrived += drain(receiver);
            usleep(1000);
        }
        sent++;
        arrived += drain(receiver);
    }
    for (struct pollfd quiet = {.fd = receiver, .events = POLLIN}; poll(&quiet, 1, QUIET_MS) > 0;)
        arrived += drain(receiver);
    printf("{\"sent\": %d, \"arrived\": %d}\n", sent, arrived);
    return 0;
}
