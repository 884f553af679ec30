/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

void merge_lays_one_tree_over_another(void **state);
void merge_covers_what_was_asked(void **state);
