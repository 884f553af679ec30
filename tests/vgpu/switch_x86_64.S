/* SPDX-License-Identifier: Apache-2.0 */
/* void vgpu_switch(void **save, void *to): leave this stack, its top in *save, and go on where
 * 'to' left off.  Only what the System V ABI lets a callee keep is kept. */
    .text
    .globl vgpu_switch
    .type vgpu_switch, @function
vgpu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size vgpu_switch, . - vgpu_switch
    .section .note.GNU-stack, "", @progbits
