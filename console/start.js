// Starts the page, and reloads it once where a cache mixed old modules with new ones.

const TRIED = "parlance-reloaded";

try {
  await import("./page.js");
  sessionStorage.removeItem(TRIED);
} catch (error) {
  if (sessionStorage.getItem(TRIED)) {
    const note = document.createElement("p");
    note.className = "error";
    note.setAttribute("role", "alert");
    note.textContent = `The console could not start: ${error.message}. Reload the page; if it stays so, the server's files are not whole.`;
    document.body.append(note);
    throw error;
  }
  sessionStorage.setItem(TRIED, "yes");
  location.reload();
}
