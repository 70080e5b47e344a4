/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the actor learns about a packet, for programs of others; behind ww_config.describes, so that a policy that does not ask for it pays nothing. */
#ifndef WW_DESCRIBE_H
#define WW_DESCRIBE_H

#include "classify/config.h"
#include "classify/maps.h"
#include "frame/arith.h"
#include "frame/hook.h"

/* The third seam between classifier and actor: told what was made of a packet. A bundle's does nothing; the agent links its own
 * (bpf/act/describe.h) where a policy asks for `metadata` or `verdicts`. verdict: enum ww_verdict. */
__weak __noinline int ww_describe(WW_HOOK_ARG *ctx, const struct ww_description *said, int verdict)
{
	int result = 0;

	ww_hide(result); /* no caller may know it */
	return result;
}

/* Tells the actor of a packet that is at the end of its way. */
static __always_inline void ww_tell(WW_HOOK_CTX *ctx, int verdict)
{
	struct ww_cpu *percpu;

	if (!ww_config.describes)
		return;
	percpu = ww_this_cpu(bpf_get_smp_processor_id());
	if (percpu)
		ww_describe(ctx, &percpu->scratch.described, verdict);
}

#endif
