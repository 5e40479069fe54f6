// Assists htmx, which refreshes the live part of a page: prevents needless requests, and marks the
// page as old if a refresh failed.
"use strict";

// Request nothing while the page is hidden.
document.addEventListener("htmx:before:request", (event) => {
  if (document.hidden) event.preventDefault();
});

// If the session has ended, show the sign-in page instead of this page, not inside it.
document.addEventListener("htmx:before:response", (event) => {
  if (event.detail.ctx.response.raw.redirected) {
    event.preventDefault();
    location.reload();
  }
});

// Show that the page is old. The next refresh replaces the element and so hides it again.
for (const trouble of ["htmx:error", "htmx:response:error"]) {
  document.addEventListener(trouble, () => {
    document.querySelector("#updated .stale")?.removeAttribute("hidden");
  });
}
