// SPDX-License-Identifier: Apache-2.0
/*
 * What Rust cannot call itself: DPDK's inline functions, and what needs its structs, which change with its
 * version. Functions return 0 or a negative errno unless they say otherwise.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

/* What DPDK and the libraries of its AF_XDP driver said last, for error messages. */

static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;
static char said[2048];
static size_t said_length;

static ssize_t say(void *cookie, const char *text, size_t length)
{
	(void)cookie;
	pthread_mutex_lock(&said_lock);
	/* When it is full the old words go: the newest are of use. */
	if (length > sizeof(said) - said_length)
		said_length = 0;
	size_t part = length < sizeof(said) ? length : sizeof(said);
	memcpy(said + said_length, text, part);
	said_length += part;
	pthread_mutex_unlock(&said_lock);
	return (ssize_t)length;
}

/* Copies out what was said since the last call and forgets it. Returns the length. */
size_t dpdk_said(char *out, size_t room)
{
	pthread_mutex_lock(&said_lock);
	size_t length = said_length < room ? said_length : room;
	memcpy(out, said, length);
	said_length = 0;
	pthread_mutex_unlock(&said_lock);
	return length;
}

static int print(int level, const char *format, va_list arguments)
{
	char line[512];
	/* 0 is a warning in both libraries, higher is less. */
	int length = level > 0 ? 0 : vsnprintf(line, sizeof(line), format, arguments);
	if (length > 0)
		say(NULL, line, (size_t)length < sizeof(line) ? (size_t)length : sizeof(line) - 1);
	return length;
}

/* The library comes with the AF_XDP driver, if that is installed; it is not loaded for this. */
static void print_here(const char *library, const char *setter)
{
	void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
	void (*set)(void *) = handle == NULL ? NULL : (void (*)(void *))dlsym(handle, setter);
	if (set != NULL)
		set((void *)print);
	if (handle != NULL)
		dlclose(handle);
}

/* Where EAL loads drivers from. */
const char *dpdk_drivers(void)
{
	return RTE_EAL_PMD_PATH;
}

int dpdk_start(int argc, char **argv)
{
	/* DPDK's own stream writes to stdout and to syslog. */
	FILE *stream = fopencookie(NULL, "w", (cookie_io_functions_t){.write = say});
	if (stream == NULL)
		return -errno;
	setvbuf(stream, NULL, _IOLBF, BUFSIZ);
	rte_openlog_stream(stream);
	rte_errno = 0;
	int result = 0;
	if (rte_eal_init(argc, argv) < 0)
		result = rte_errno != 0 ? -rte_errno : -EIO;
	print_here("libbpf.so.1", "libbpf_set_print");
	print_here("libxdp.so.1", "libxdp_set_print");
	return result;
}

/* Memory. */

/* A mempool in one piece of memory, `area`. NULL with a negative errno in `result`. */
struct rte_mempool *dpdk_pool(const char *name, unsigned int mbufs, uint8_t **area, size_t *length,
			      int *result)
{
	/* What a thread keeps of the mbufs for itself. */
	const unsigned int cache = 256;
	struct rte_mempool *pool =
		rte_pktmbuf_pool_create(name, mbufs, cache, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (pool == NULL) {
		*result = rte_errno != 0 ? -rte_errno : -ENOMEM;
		return NULL;
	}
	struct rte_mempool_memhdr *chunk = STAILQ_FIRST(&pool->mem_list);
	if (pool->nb_mem_chunks != 1 || chunk == NULL) {
		rte_mempool_free(pool);
		*result = -ENOMEM;
		return NULL;
	}
	*area = chunk->addr;
	*length = chunk->len;
	return pool;
}

/* Ports. */

struct dpdk_info {
	struct rte_device *device;
	uint32_t interface;
	uint16_t queues;
	char driver[32];
};

int dpdk_info(uint16_t port, struct dpdk_info *out)
{
	struct rte_eth_dev_info info;
	int result = rte_eth_dev_info_get(port, &info);
	if (result != 0)
		return result;
	out->device = info.device;
	out->interface = info.if_index;
	out->queues = RTE_MIN(info.max_rx_queues, info.max_tx_queues);
	snprintf(out->driver, sizeof(out->driver), "%s", info.driver_name == NULL ? "" : info.driver_name);
	return 0;
}

/* Gives a port one queue of each direction for each pool, and starts it. step : done last, in words. */
int dpdk_begin(uint16_t port, uint16_t queues, struct rte_mempool **pools, const char **step)
{
	/* The same two bytes again and again make Toeplitz hash a flow's both directions to one value. */
	uint8_t key[256];
	for (size_t i = 0; i < sizeof(key); i++)
		key[i] = i % 2 == 0 ? 0x6d : 0x5a;
	struct rte_eth_dev_info info;
	*step = "asking what it can do";
	int result = rte_eth_dev_info_get(port, &info);
	if (result != 0)
		return result;
	/* 5-tuples as far as the device knows them. */
	uint64_t spread = info.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP);
	struct rte_eth_conf conf;
	memset(&conf, 0, sizeof(conf));
	if (queues > 1 && spread != 0) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_key = key;
		conf.rx_adv_conf.rss_conf.rss_key_len = info.hash_key_size != 0 ? info.hash_key_size : 40;
		conf.rx_adv_conf.rss_conf.rss_hf = spread;
	}
	*step = "configuring its queues";
	result = rte_eth_dev_configure(port, queues, queues, &conf);
	if (result != 0)
		return result;
	uint16_t receive = info.default_rxportconf.ring_size != 0 ? info.default_rxportconf.ring_size : 1024;
	uint16_t send = info.default_txportconf.ring_size != 0 ? info.default_txportconf.ring_size : 1024;
	result = rte_eth_dev_adjust_nb_rx_tx_desc(port, &receive, &send);
	int socket = rte_eth_dev_socket_id(port);
	for (uint16_t queue = 0; queue < queues && result == 0; queue++) {
		*step = "setting up a receive queue";
		result = rte_eth_rx_queue_setup(port, queue, receive, socket, NULL, pools[queue]);
		if (result != 0)
			return result;
		*step = "setting up a send queue";
		result = rte_eth_tx_queue_setup(port, queue, send, socket, NULL);
	}
	if (result != 0)
		return result;
	*step = "starting it";
	return rte_eth_dev_start(port);
}

/* lost : missed by the device or for want of mbufs. sent : from this queue, UINT64_MAX if not known. */
int dpdk_stats(uint16_t port, uint16_t queue, uint64_t *lost, uint64_t *sent)
{
	struct rte_eth_stats stats;
	memset(&stats, 0, sizeof(stats));
	int result = rte_eth_stats_get(port, &stats);
	*lost = stats.imissed + stats.rx_nombuf;
	*sent = result == 0 && queue < RTE_ETHDEV_QUEUE_STAT_CNTRS ? stats.q_opackets[queue] : UINT64_MAX;
	return result;
}

/* Packets. */

/*
 * Receives at most `room` packets. Those that lie in the area as one piece are kept, in `mbufs` and `spans`
 * (start, length, free bytes in front); the others are freed. Returns how many are kept, and in `others` how many were freed.
 */
uint16_t dpdk_receive(uint16_t port, uint16_t queue, const uint8_t *area, size_t length,
		      struct rte_mbuf **mbufs, size_t (*spans)[3], uint16_t room, uint16_t *others)
{
	uint16_t came = rte_eth_rx_burst(port, queue, mbufs, room);
	uint16_t kept = 0;
	for (uint16_t i = 0; i < came; i++) {
		struct rte_mbuf *mbuf = mbufs[i];
		if (i + 1 < came)
			rte_prefetch0(mbufs[i + 1]);
		bool whole = mbuf->nb_segs == 1 || rte_pktmbuf_linearize(mbuf) == 0;
		size_t start = rte_pktmbuf_mtod(mbuf, uintptr_t) - (uintptr_t)area;
		size_t size = rte_pktmbuf_data_len(mbuf);
		if (!whole || start > length || size > length - start) {
			rte_pktmbuf_free(mbuf);
			continue;
		}
		mbufs[kept] = mbuf;
		spans[kept][0] = start;
		spans[kept][1] = size;
		spans[kept][2] = RTE_MIN((size_t)rte_pktmbuf_headroom(mbuf), start);
		kept++;
	}
	*others = came - kept;
	return kept;
}

/* As often as a burst is offered: a full ring of the kernel empties while it is asked again. */
#define TRIES 8
/* BURST of judge.rs. */
#define ROOM 64

/* As Rust has them. */
enum fate { ENDS, PASSES, BOUNCES };

static uint16_t send_all(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	uint16_t sent = 0;
	for (int i = 0; i < TRIES && sent < count; i++)
		sent += rte_eth_tx_burst(port, queue, mbufs + sent, count - sent);
	rte_pktmbuf_free_bulk(mbufs + sent, count - sent);
	return sent;
}

/*
 * Sends what passes by the port `to` (nothing if not `forward`), and what bounces by `from`; frees the rest. spans : where packets lie now in
 * the area. sent : how many were, of both.
 */
void dpdk_settle(uint16_t from, uint16_t to, uint16_t queue, bool forward, const uint8_t *area,
		 struct rte_mbuf **mbufs, size_t (*spans)[3], const uint8_t *fates, uint16_t count,
		 uint16_t sent[2])
{
	struct rte_mbuf *going[2][ROOM], *rest[ROOM];
	uint16_t counts[2] = {0, 0}, others = 0;
	for (uint16_t i = 0; i < count && i < ROOM; i++) {
		struct rte_mbuf *mbuf = mbufs[i];
		if (fates[i] != BOUNCES && !(fates[i] == PASSES && forward)) {
			rest[others++] = mbuf;
			continue;
		}
		/* What receiving left in the flags must not ask the sender for anything. */
		mbuf->ol_flags &= RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL;
		mbuf->data_off = (uintptr_t)area + spans[i][0] - (uintptr_t)mbuf->buf_addr;
		mbuf->data_len = mbuf->pkt_len = spans[i][1];
		bool back = fates[i] == BOUNCES;
		going[back][counts[back]++] = mbuf;
	}
	sent[0] = send_all(to, queue, going[0], counts[0]);
	sent[1] = send_all(from, queue, going[1], counts[1]);
	rte_pktmbuf_free_bulk(rest, others);
}
