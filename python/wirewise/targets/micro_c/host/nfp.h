/* SPDX-License-Identifier: Apache-2.0 */
/* What the generated micro-C uses of Netronome's compiler and libraries, on this machine. Memories are plain
 * memory, contexts are threads, and signals are what they are there: flags of a thread that it waits for. An ME
 * is big-endian: words are in this machine's order here, and a byte of memory lies at its address ^ 3. */
#ifndef NFP_H
#define NFP_H

#include <stddef.h>
#include <stdint.h>

/* Storage. A context's local memory and visible signals are its own. With clang and -DNFP_SPACES, pointers to
 * different memories are different types. */
#if defined(NFP_SPACES) && defined(__clang__)
#define __cls __attribute__((address_space(1)))
#define __emem __attribute__((address_space(2)))
#define __imem __attribute__((address_space(3)))
#define __mem40 __attribute__((address_space(4)))
#else
#define __cls
#define __emem
#define __imem
#define __mem40
#endif
#define __lmem __thread
#define __align64 __attribute__((aligned(64)))
#define __visible __thread
#define __export
#define __shared
#define __gpr
#define __xread
#define __xwrite
#define __xrw
#define __intrinsic static __inline __attribute__((unused))

/* -- what the compiler has */

typedef struct {
	unsigned int number;
} SIGNAL;

#define __assign_relative_register(signal, which) ((signal)->number = (which))
#define __implicit_write(signal) ((void)(signal))
#define wait_for_all(signal) nfp_wait((signal)->number)
#define LoadTimeConstant(name) nfp_constant(name)
#define ctx() nfp_context()
#define kill 0

void nfp_wait(unsigned int number);
unsigned int nfp_constant(const char *name);
unsigned int nfp_context(void);
void ctx_wait(int how);
void ww_raise(uint32_t address);

/* -- nfp_intrinsic.h */

unsigned int pop_count(uint32_t data);

/* -- nfp/cls.h, nfp/mem_bulk.h, nfp/mem_atomic.h: sizes must be constants, in words (or bytes) up to a limit */

/* 0, and no constant for other sizes, which the compiler refuses. */
#define NFP_SIZE(size, unit, most) \
	((size) + 0 * sizeof(char[(size) % (unit) == 0 && (size) > 0 && (size) <= (most) ? 1 : -1]))

#define cls_read(to, from, size) nfp_cls_read(to, from, NFP_SIZE(size, 4, 64))
#define mem_read32(to, from, size) nfp_mem_read(to, from, NFP_SIZE(size, 4, 128))
#define mem_write32(from, to, size) nfp_mem_write(from, to, NFP_SIZE(size, 4, 128))
#define mem_write8(from, to, size) nfp_mem_write(from, to, NFP_SIZE(size, 1, 32))
#define mem_read_atomic(to, from, size) nfp_read_atomic(to, from, NFP_SIZE(size, 4, 32))
#define mem_write_atomic(from, to, size) nfp_write_atomic(from, to, NFP_SIZE(size, 4, 32))
#define mem_bitset(bits, at, size) nfp_bitset(bits, at, NFP_SIZE(size, 4, 4))
#define mem_test_add(data, at, size) nfp_test_add(data, at, NFP_SIZE(size, 4, 4))

void nfp_cls_read(uint32_t *to, const __cls void *from, size_t size);
void nfp_mem_read(uint32_t *to, const __mem40 void *from, size_t size);
void nfp_mem_write(const uint32_t *from, __mem40 void *to, size_t size);
void nfp_read_atomic(uint32_t *to, const __mem40 void *from, size_t size);
void nfp_write_atomic(const uint32_t *from, __mem40 void *to, size_t size);
void nfp_bitset(const uint32_t *bits, __mem40 void *at, size_t size);
void nfp_test_add(uint32_t *data, __mem40 void *at, size_t size);
void mem_incr32(__mem40 void *at);

/* -- pkt/pkt.h: packets come from the vectors, and are compared when they are sent */

struct nbi_meta_catamaran {
	struct {
		unsigned int isl, pnum, len;
	} pkt_info;
	unsigned int port, seq, seqr;
};

struct pkt_ms_info {
	unsigned int offset;
};

enum PKT_CTM_SIZE { PKT_CTM_SIZE_256, PKT_CTM_SIZE_512, PKT_CTM_SIZE_1024, PKT_CTM_SIZE_2048 };

void pkt_nbi_recv(struct nbi_meta_catamaran *meta, size_t size);
__mem40 void *pkt_ctm_ptr40(unsigned int island, unsigned int number, unsigned int offset);
void pkt_mac_egress_cmd_write(__mem40 void *buffer, unsigned char offset, int l3, int l4);
struct pkt_ms_info pkt_msd_write(__mem40 void *buffer, unsigned char offset);
void pkt_nbi_send(unsigned int island, unsigned int number, const struct pkt_ms_info *script,
		  unsigned int length, unsigned int nbi, unsigned int queue, unsigned int sequencer,
		  unsigned int sequence, enum PKT_CTM_SIZE size);

#ifndef NFP_HOST
#define main nfp_main
#endif
int nfp_main(void);

#endif
