/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The actor: what is done with packets of a class beside passing and dropping them. The agent carries it, compiled, and links ww_act in the
 * place of a bundle's (object/link.rs).
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "act/act_abi_layout.h"

/* Features of the PDU session container are the classifier's. */
#define WW_PDU_SESSION 0

#include "act/maps.h"

#include "act/deny.h"
#include "act/describe.h"
#include "act/evidence.h"
#include "act/tell.h"
#include "act/steer.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
