// The errors. A class exists only if the caller reacts differently; see index.d.ts.

export class LimpetError extends Error {
  constructor(message, { cause, ...fields } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = this.constructor.name;
    Object.assign(this, { scope: null, id: null }, fields);
  }
}

export class NotFound extends LimpetError {}
export class AlreadyExists extends LimpetError {}
export class Unsupported extends LimpetError {}
export class Corrupt extends LimpetError {}

export class Conflict extends LimpetError {
  constructor(message, fields) {
    super(message, { expected: null, found: null, owner: null, expiresAt: null, ...fields });
  }
}

export class InvalidInput extends LimpetError {
  constructor(message, fields) {
    super(message, { path: null, ...fields });
  }
}

export class Unavailable extends LimpetError {
  constructor(message, fields) {
    super(message, { outcomeKnown: true, ...fields });
  }
}

const classes = { NotFound, AlreadyExists, Conflict, InvalidInput, Unsupported, Unavailable, Corrupt };

/** Return the error of a problem (RFC 9457); of another server's answer only the status is known. */
export function errorOf(problem, status) {
  const known = classes[problem?.title];
  const message = problem?.detail ?? `the server refused the request. status=\`${status}\``;
  if (known === undefined) {
    // A proxy that cannot reach the server answers 502 or 504, and may have passed the request on.
    return [502, 503, 504].includes(status)
      ? new Unavailable(message, { outcomeKnown: false, status })
      : new LimpetError(message, { status });
  }
  const { scope, id = null } = problem;
  const fields = { scope: scope ? keyOf(scope) : null, id };
  if (known === Conflict) {
    for (const name of ["expected", "found", "owner"]) fields[name] = problem[name] ?? null;
    fields.expiresAt = problem.expires_at ? new Date(problem.expires_at) : null;
  }
  if (known === InvalidInput) fields.path = problem.path ?? null;
  if (known === Unavailable) fields.outcomeKnown = problem.outcome_known ?? false;
  return new known(message, fields);
}

export function keyOf(found) {
  return { sessionId: found.session_id, scopeId: found.scope_id, kind: found.kind };
}
