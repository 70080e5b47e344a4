/* SPDX-License-Identifier: Apache-2.0 */
/* The execution chain: threads that each compute a share of a layer's neurons. Dispatchers, the threads that
 * receive packets, take turns with it. For each layer a dispatcher notifies the first executor, each passes the
 * notification on before it works, and the end comes back from the last one to the first. */

/* Contexts of an ME: the first ones dispatch, the next ones execute, the rest sleeps. */
#ifndef WW_DISPATCHERS
#define WW_DISPATCHERS 2
#endif
#ifndef WW_THREADS
#define WW_THREADS 4
#endif
/* The first island of the chain, MEs of an island, and the number of the first ME in an address. */
#ifndef WW_ISLAND
#define WW_ISLAND 32
#endif
#ifndef WW_MES
#define WW_MES 12
#endif
#define WW_FIRST_ME 4

/* Signals, of the same number in every thread. */
#define WW_START 1
#define WW_END 2

/* What the threads exchange: the bits of each layer, in blocks of 8 words, and the scores. */
__export __shared __imem __align64 uint32_t ww_bits[WW_SHARED_WORDS];
__export __shared __imem __align64 uint32_t ww_sums[2 * WW_OUTPUTS];
/* Dispatchers' turns with the chain, and the address of the one whose turn it is. */
__export __shared __imem uint32_t ww_next_turn;
__export __shared __imem uint32_t ww_turn;
__export __shared __imem uint32_t ww_holder;

__visible SIGNAL ww_start;
__visible SIGNAL ww_end;

/* Raises a signal in the thread with this address. */
#ifdef __NFP_LANG_MICROC
__intrinsic void ww_raise(uint32_t address)
{
	__asm ct[interthread_signal, --, address, 0, --];
}
#else
void ww_raise(uint32_t address);
#endif

__intrinsic uint32_t ww_address(uint32_t island, uint32_t me, uint32_t context)
{
	return island << 24 | me << 9 | context << 6;
}

/* The address of the executor at a place in the chain. */
static uint32_t ww_executor(uint32_t place)
{
	__gpr uint32_t me;

	me = place / WW_THREADS;
	return ww_address(WW_ISLAND + me / WW_MES, WW_FIRST_ME + me % WW_MES,
			  WW_DISPATCHERS + place % WW_THREADS);
}

/* This thread's place in the chain, beyond its end for those that have none. */
static uint32_t ww_own_place(void)
{
	__gpr uint32_t me, context;

	me = LoadTimeConstant("__meid");
	context = ctx();
	if (context < WW_DISPATCHERS || context >= WW_DISPATCHERS + WW_THREADS)
		return WW_EXECUTORS;
	me = ((me >> 4) - WW_ISLAND) * WW_MES + (me & 15) - WW_FIRST_ME;
	return me * WW_THREADS + context - WW_DISPATCHERS;
}

/* -- executors */

/* The first neuron of a place's share. */
__intrinsic uint32_t ww_share(uint32_t place, uint32_t each, uint32_t neurons)
{
	return place * each < neurons ? place * each : neurons;
}

/* Waits for the start of a layer, and tells the next executor. */
static void ww_started(uint32_t place)
{
	wait_for_all(&ww_start);
	if (place + 1 < WW_EXECUTORS)
		ww_raise(ww_executor(place + 1) | WW_START << 2);
}

/* Waits until all executors after this one have ended, and tells the one before. */
static void ww_ended(uint32_t place)
{
	__xread uint32_t holder[1];

	if (place + 1 < WW_EXECUTORS)
		wait_for_all(&ww_end);
	if (place) {
		ww_raise(ww_executor(place - 1) | WW_END << 2);
		return;
	}
	mem_read_atomic(holder, (__mem40 void *)&ww_holder, sizeof(holder));
	ww_raise(holder[0] | WW_END << 2);
}

#if WW_LAYERS > 1
/* Sets bits of a word of the next layer. Its other bits may be another executor's. A write has ended when its
 * data have left the registers; reading the word shows that they are in memory. */
static void ww_set_bits(uint32_t word, uint32_t bits)
{
	__xwrite uint32_t set[1];
	__xread uint32_t back[1];

	set[0] = bits;
	mem_bitset(set, (__mem40 void *)&ww_bits[word], sizeof(set));
	mem_read_atomic(back, (__mem40 void *)&ww_bits[word], sizeof(back));
}
#endif

static void ww_set_sum(uint32_t class_id, uint32_t high, uint32_t low)
{
	__xwrite uint32_t sum[2];
	__xread uint32_t back[1];

	sum[0] = high;
	sum[1] = low;
	mem_write_atomic(sum, (__mem40 void *)&ww_sums[2 * class_id], sizeof(sum));
	mem_read_atomic(back, (__mem40 void *)&ww_sums[2 * class_id], sizeof(back));
}

/* -- dispatchers */

/* Waits until the chain is this thread's, and writes its input. */
static void ww_take_turn(void)
{
	__xrw uint32_t ticket[1];
	__xread uint32_t now[1];
	__xwrite uint32_t block[8];
	__gpr uint32_t mine, word;

	ticket[0] = 1;
	mem_test_add(ticket, (__mem40 void *)&ww_next_turn, sizeof(ticket));
	mine = ticket[0];
	do
		mem_read_atomic(now, (__mem40 void *)&ww_turn, sizeof(now));
	while (now[0] != mine);

	for (word = 0; word < WW_INPUT_ROOM; word += 8) {
		block[0] = ww_x0[word];
		block[1] = ww_x0[word + 1];
		block[2] = ww_x0[word + 2];
		block[3] = ww_x0[word + 3];
		block[4] = ww_x0[word + 4];
		block[5] = ww_x0[word + 5];
		block[6] = ww_x0[word + 6];
		block[7] = ww_x0[word + 7];
		mem_write_atomic(block, (__mem40 void *)&ww_bits[word], sizeof(block));
	}
	block[0] = 0;
	block[1] = 0;
	block[2] = 0;
	block[3] = 0;
	block[4] = 0;
	block[5] = 0;
	block[6] = 0;
	block[7] = 0;
	for (; word < WW_SHARED_WORDS; word += 8)
		mem_write_atomic(block, (__mem40 void *)&ww_bits[word], sizeof(block));
	mem_read_atomic(now, (__mem40 void *)&ww_bits[WW_SHARED_WORDS - 1], sizeof(now));

	word = LoadTimeConstant("__meid");
	block[0] = ww_address(word >> 4, word & 15, ctx());
	mem_write_atomic(block, (__mem40 void *)&ww_holder, sizeof(block[0]));
	mem_read_atomic(now, (__mem40 void *)&ww_holder, sizeof(now));
}

/* The class of the input bits. */
static uint32_t ww_infer(void)
{
	__xread uint32_t sum[2];
	__gpr uint32_t layer, class_id;

	ww_take_turn();
	for (layer = 0; layer < WW_LAYERS; layer++) {
		ww_raise(ww_executor(0) | WW_START << 2);
		wait_for_all(&ww_end);
	}
	for (class_id = 0; class_id < WW_OUTPUTS; class_id++) {
		mem_read_atomic(sum, (__mem40 void *)&ww_sums[2 * class_id], sizeof(sum));
		ww_offer(class_id, sum[0], sum[1]);
	}
	mem_incr32((__mem40 void *)&ww_turn);
	return ww_best[2];
}
