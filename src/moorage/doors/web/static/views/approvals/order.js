/** The order of approvals, and the plan before another. Pure. */

/** Earliest expiry first, then longest wait. @param {any} one @param {any} other */
export function mostUrgent(one, other) {
  const end = (/** @type {any} */ approval) => (approval.expires_at ? Date.parse(approval.expires_at) : Infinity);
  return (end(one) === end(other) ? 0 : end(one) - end(other)) || Date.parse(one.asked_at) - Date.parse(other.asked_at);
}

/** The last approval of a session before this one that had a plan. @param {any[]} all @param {any} approval */
export function before(all, approval) {
  const asked = (/** @type {any} */ each) => Date.parse(each.asked_at);
  const older = all.filter((each) => each.plan !== null && each.approval_id !== approval.approval_id && asked(each) <= asked(approval));
  return older.sort((one, other) => asked(one) - asked(other)).at(-1);
}
