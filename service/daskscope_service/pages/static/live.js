// Keeps the live part of a page fresh: htmx asks, this says when not to, and when it is old.
"use strict";

// Nobody looks: ask for nothing.
document.addEventListener("htmx:before:request", (event) => {
  if (document.hidden) event.preventDefault();
});

// The session is over: show the sign-in page as a page, not inside this one.
document.addEventListener("htmx:before:response", (event) => {
  if (event.detail.ctx.response.raw.redirected) {
    event.preventDefault();
    location.reload();
  }
});

// The next answer takes this back, because it comes without it.
for (const trouble of ["htmx:error", "htmx:response:error"]) {
  document.addEventListener(trouble, () => {
    document.querySelector("#updated .stale")?.removeAttribute("hidden");
  });
}
