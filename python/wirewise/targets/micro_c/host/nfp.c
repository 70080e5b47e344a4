/* SPDX-License-Identifier: Apache-2.0 */
/* The chip: its MEs' contexts as threads, their signals and memories, and packets from a file.
 *
 *     check vectors.txt [SEED]
 *
 * compares what becomes of the packets with what the file says. With a seed, threads pause at random where a
 * context would be swapped out. A line of the file is one of
 *
 *     packet PORT PORT FRAME FRAME     comes in by a port and leaves by another, as
 *     flow ELEMENT WORDS               statistics of a flow
 *     class ELEMENT CLASS              what the result of a flow must be in the end
 */
#define NFP_HOST
#define _GNU_SOURCE
#include <nfp.h>
#undef kill

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ww_config.h"

#define CONTEXTS 8
#define ISLAND 32
#define ISLAND_MES 12
#define FIRST_ME 4
#define MAX_FRAME 2048
/* Where a frame begins in its buffer: the offset and the prepended bytes of apps/wire. */
#define OFFSET 64
#define PREPENDED 8
#define SECONDS 60

#ifdef WW_EXECUTORS
#define MES ((WW_EXECUTORS + 3) / 4)
#else
#define MES 2
#endif
#define THREADS (MES * CONTEXTS)

static void give_up(const char *why)
{
	fprintf(stderr, "error: %s\n", why);
	exit(2);
}

/* -- contexts and signals */

struct context {
	pthread_mutex_t lock;
	pthread_cond_t raised;
	unsigned int me, number, signals;
};

static struct context contexts[THREADS];
static __thread struct context *self;
static __thread unsigned int pause_seed;
static unsigned int seed;

static void swap_out(void)
{
	if (!seed)
		return;
	pause_seed = pause_seed * 1103515245 + 12345;
	switch (pause_seed >> 16 & 31) {
	case 0:
		usleep(pause_seed >> 21 & 63);
		break;
	case 1:
	case 2:
		sched_yield();
		break;
	}
}

void nfp_wait(unsigned int number)
{
	if (number < 1 || number > 15)
		give_up("a signal without a number is waited for");
	pthread_mutex_lock(&self->lock);
	while (!(self->signals >> number & 1))
		pthread_cond_wait(&self->raised, &self->lock);
	self->signals &= ~(1u << number);
	pthread_mutex_unlock(&self->lock);
}

void ww_raise(uint32_t address)
{
	unsigned int island = address >> 24, me = address >> 9 & 15, number = address >> 2 & 15;
	unsigned int which = ((island - ISLAND) * ISLAND_MES + me - FIRST_ME) * CONTEXTS + (address >> 6 & 7);
	struct context *to = contexts + which;

	swap_out();
	if (island < ISLAND || me < FIRST_ME || which >= THREADS || to->me != (island << 4 | me))
		give_up("a signal is sent to an ME that is not there");
	pthread_mutex_lock(&to->lock);
	if (to->signals >> number & 1)
		give_up("a signal is sent before the one before it was waited for");
	to->signals |= 1u << number;
	pthread_cond_signal(&to->raised);
	pthread_mutex_unlock(&to->lock);
}

unsigned int nfp_constant(const char *name)
{
	if (strcmp(name, "__meid"))
		give_up("an unknown constant is asked for");
	return self->me;
}

unsigned int nfp_context(void)
{
	return self->number;
}

void ctx_wait(int how)
{
	(void)how;
	pthread_exit(NULL);
}

/* -- memories */

unsigned int pop_count(uint32_t data)
{
	return (unsigned int)__builtin_popcount(data);
}

static unsigned char *byte(const void *address)
{
	return (unsigned char *)((uintptr_t)address ^ 3);
}

void nfp_cls_read(uint32_t *to, const void *from, size_t size)
{
	swap_out();
	if ((uintptr_t)from % 4)
		give_up("CLS is read at an address that is not that of a word");
	memcpy(to, from, size);
}

void nfp_mem_read(uint32_t *to, const void *from, size_t size)
{
	size_t at;

	swap_out();
	for (at = 0; at < size; at++)
		*byte((char *)to + at) = *byte((const char *)from + at);
}

void nfp_mem_write(const uint32_t *from, void *to, size_t size)
{
	size_t at;

	swap_out();
	for (at = 0; at < size; at++)
		*byte((char *)to + at) = *byte((const char *)from + at);
}

void nfp_read_atomic(uint32_t *to, const void *from, size_t size)
{
	size_t word;

	swap_out();
	sched_yield(); /* it may be waiting for a value */
	for (word = 0; word < size / 4; word++)
		to[word] = __atomic_load_n((const uint32_t *)from + word, __ATOMIC_ACQUIRE);
}

void nfp_write_atomic(const uint32_t *from, void *to, size_t size)
{
	size_t word;

	swap_out();
	for (word = 0; word < size / 4; word++)
		__atomic_store_n((uint32_t *)to + word, from[word], __ATOMIC_RELEASE);
}

void nfp_bitset(const uint32_t *bits, void *at, size_t size)
{
	(void)size;
	swap_out();
	__atomic_fetch_or((uint32_t *)at, *bits, __ATOMIC_ACQ_REL);
}

void nfp_test_add(uint32_t *data, void *at, size_t size)
{
	(void)size;
	swap_out();
	*data = __atomic_fetch_add((uint32_t *)at, *data, __ATOMIC_ACQ_REL);
}

void mem_incr32(void *at)
{
	swap_out();
	__atomic_fetch_add((uint32_t *)at, 1, __ATOMIC_ACQ_REL);
}

/* -- packets */

struct packet {
	uint32_t buffer[(OFFSET + PREPENDED + MAX_FRAME) / 4];
	unsigned char expected[MAX_FRAME];
	unsigned int length, port, expected_port, wrong;
};

static struct packet *packets;
static unsigned int count, received, sent;
static pthread_mutex_t packets_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t packet_sent = PTHREAD_COND_INITIALIZER;

void pkt_nbi_recv(struct nbi_meta_catamaran *meta, size_t size)
{
	unsigned int number;

	memset(meta, 0, size);
	pthread_mutex_lock(&packets_lock);
	number = received < count ? received++ : count;
	pthread_mutex_unlock(&packets_lock);
	if (number == count)
		pthread_exit(NULL);
	meta->pkt_info.isl = ISLAND;
	meta->pkt_info.pnum = number;
	meta->pkt_info.len = packets[number].length + PREPENDED;
	meta->port = packets[number].port * 4; /* channels */
}

void *pkt_ctm_ptr40(unsigned int island, unsigned int number, unsigned int offset)
{
	(void)island;
	return (char *)packets[number].buffer + offset;
}

void pkt_mac_egress_cmd_write(void *buffer, unsigned char offset, int l3, int l4)
{
	(void)buffer, (void)offset, (void)l3, (void)l4;
}

struct pkt_ms_info pkt_msd_write(void *buffer, unsigned char offset)
{
	struct pkt_ms_info script;

	(void)buffer;
	script.offset = offset;
	return script;
}

void pkt_nbi_send(unsigned int island, unsigned int number, const struct pkt_ms_info *script,
		  unsigned int length, unsigned int nbi, unsigned int queue, unsigned int sequencer,
		  unsigned int sequence, enum PKT_CTM_SIZE size)
{
	struct packet *packet = packets + number;
	const char *frame = (char *)packet->buffer + OFFSET + PREPENDED;
	unsigned int at;

	(void)island, (void)nbi, (void)sequencer, (void)sequence, (void)size;
	packet->wrong = queue != packet->expected_port * 32 || length != packet->length + 4 ||
			script->offset != OFFSET + PREPENDED - 4;
	for (at = 0; at < packet->length; at++)
		packet->wrong |= *byte(frame + at) != packet->expected[at];
	pthread_mutex_lock(&packets_lock);
	sent++;
	pthread_cond_signal(&packet_sent);
	pthread_mutex_unlock(&packets_lock);
}

/* -- the file */

static unsigned int bytes_of(const char *hex, unsigned char *to)
{
	unsigned int length = 0, value;

	for (; sscanf(hex, "%2x", &value) == 1; hex += 2) {
		if (length == MAX_FRAME)
			give_up("a line has too many bytes");
		to[length++] = (unsigned char)value;
	}
	return length;
}

static void read_packet(unsigned int in, unsigned int out, const char *before, const char *after)
{
	static unsigned char bytes[MAX_FRAME];
	struct packet *packet;
	unsigned int at;

	packets = realloc(packets, (count + 1) * sizeof(*packets));
	if (!packets)
		give_up("there is no memory for so many packets");
	packet = packets + count++;
	memset(packet, 0, sizeof(*packet));
	packet->port = in;
	packet->expected_port = out;
	packet->length = bytes_of(before, bytes);
	for (at = 0; at < packet->length; at++)
		*byte((char *)packet->buffer + OFFSET + PREPENDED + at) = bytes[at];
	if (bytes_of(after, packet->expected) != packet->length)
		give_up("a packet changes its length");
}

#ifdef WW_FLOW_BITS
extern uint32_t ww_flows[];

static void read_flow(unsigned int element, const char *hex)
{
	static unsigned char bytes[MAX_FRAME];
	unsigned int at, length = bytes_of(hex, bytes);

	if (element >> WW_FLOW_BITS || length != 8 * WW_FEATURES)
		give_up("a flow is none of the program's");
	for (at = 0; at < length; at++)
		*byte((char *)(ww_flows + element * 2 * WW_FEATURES) + at) = bytes[at];
}
#endif

#ifdef WW_RESULT_MEMORY
extern uint32_t ww_classes[];

static struct {
	unsigned int element, class_id;
} classes[1 << WW_FLOW_BITS];
static unsigned int class_count;

static void read_class(unsigned int element, unsigned int class_id)
{
	if (element >> WW_FLOW_BITS || class_count >> WW_FLOW_BITS)
		give_up("a flow is none of the program's");
	classes[class_count].element = element;
	classes[class_count++].class_id = class_id;
}
#endif

static void read_vectors(const char *path)
{
	static char line[5 * MAX_FRAME], before[2 * MAX_FRAME + 1], after[2 * MAX_FRAME + 1];
	unsigned int a, b;
	FILE *file = fopen(path, "r");

	if (!file)
		give_up("the vectors cannot be read");
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "packet %u %u %4096s %4096s", &a, &b, before, after) == 4)
			read_packet(a, b, before, after);
#ifdef WW_FLOW_BITS
		else if (sscanf(line, "flow %u %4096s", &a, before) == 2)
			read_flow(a, before);
#endif
#ifdef WW_RESULT_MEMORY
		else if (sscanf(line, "class %u %u", &a, &b) == 2)
			read_class(a, b);
#endif
		else
			give_up("a line of the vectors is of no kind");
	}
	fclose(file);
}

/* -- all of it */

static void *run(void *context)
{
	self = context;
	pause_seed = seed * 2654435761u + (unsigned int)(self - contexts);
	nfp_main();
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned int which, wrong = 0, results;

	if (argc < 2)
		give_up("usage: check vectors.txt [SEED]");
	alarm(SECONDS);
	seed = argc > 2 ? (unsigned int)atoi(argv[2]) : 0;
	read_vectors(argv[1]);
	for (which = 0; which < THREADS; which++) {
		struct context *context = contexts + which;

		pthread_mutex_init(&context->lock, NULL);
		pthread_cond_init(&context->raised, NULL);
		context->me = (ISLAND + which / CONTEXTS / ISLAND_MES) << 4 |
			      (FIRST_ME + which / CONTEXTS % ISLAND_MES);
		context->number = which % CONTEXTS;
	}
	for (which = 0; which < THREADS; which++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, run, contexts + which) || pthread_detach(thread))
			give_up("a thread cannot be made");
	}
	pthread_mutex_lock(&packets_lock);
	while (sent < count)
		pthread_cond_wait(&packet_sent, &packets_lock);
	pthread_mutex_unlock(&packets_lock);

	results = count;
	for (which = 0; which < count; which++)
		wrong += packets[which].wrong;
#ifdef WW_RESULT_MEMORY
	results += class_count;
	for (which = 0; which < class_count; which++)
		wrong += ww_classes[classes[which].element] != classes[which].class_id;
#endif
	printf("results=%u wrong=%u\n", results, wrong);
	fflush(stdout);
	_exit(wrong ? 1 : 0);
}
